/*
 * tls.c: whether a certificate and its key can be served: libwebsockets does not say
 * what is wrong with them, so they are read here first, with the library that it uses.
 */
#include "daemon/net/net-private.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* "FILE: what: the library's reason" */
static int fail(struct ig_error *err, const char *path, const char *what)
{
	unsigned long e = ERR_peek_last_error();
	const char *reason = e ? ERR_reason_error_string(e) : NULL;

	return ig_fail(err, -EINVAL, "%.300s: %s%s%s", path, what, reason ? ": " : "",
		       reason ? reason : "");
}

/* Nobody is asked for a password: there is nobody. */
static int no_password(char *buf, int size, int writing, void *ctx)
{
	bool *asked = ctx;

	*asked = true;
	return -1;
}

static BIO *open_file(const char *path, struct stat *st, struct ig_error *err)
{
	BIO *bio = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || fstat(fd, st)) {
		ig_fail(err, -errno, "%.300s: cannot be read: %s", path, strerror(errno));
	} else if (!S_ISREG(st->st_mode)) {
		ig_fail(err, -EINVAL, "%.300s: is no file", path);
	} else {
		bio = BIO_new_fd(fd, BIO_CLOSE);
		if (!bio)
			ig_fail(err, -ENOMEM, "%.300s: out of memory", path);
	}
	if (!bio && fd >= 0)
		close(fd);
	return bio;
}

static int read_certificate(const char *path, X509 **out, struct ig_error *err)
{
	struct stat st;
	BIO *bio = open_file(path, &st, err);
	int rc = 0;

	if (!bio)
		return -EINVAL;
	*out = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL);
	if (!*out)
		rc = fail(err, path, "server.tls_cert must be a certificate in PEM");
	else if (X509_cmp_current_time(X509_get0_notAfter(*out)) <= 0)
		rc = ig_fail(err, -EINVAL, "%.300s: the certificate has expired", path);
	/* The chain, up to the end of the file. */
	while (!rc) {
		X509 *next = PEM_read_bio_X509(bio, NULL, NULL, NULL);
		if (!next) {
			if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
				rc = fail(err, path, "a certificate of its chain can't be read");
			break;
		}
		X509_free(next);
	}
	BIO_free(bio);
	return rc;
}

static int read_private_key(const char *path, EVP_PKEY **out, struct ig_error *err)
{
	struct stat st;
	BIO *bio = open_file(path, &st, err);
	bool asked = false;
	int rc = 0;

	if (!bio)
		return -EINVAL;
	if (st.st_mode & 077) {
		rc = ig_fail(err, -EPERM, "%.300s: others may use the private key (mode %04o); run: chmod "
			     "600 %.300s", path, (unsigned)(st.st_mode & 07777), path);
	} else {
		*out = PEM_read_bio_PrivateKey(bio, NULL, no_password, &asked);
		if (!*out && asked)
			rc = ig_fail(err, -EINVAL, "%.300s: the private key is encrypted; the daemon "
				     "needs one without a password", path);
		else if (!*out)
			rc = fail(err, path, "server.tls_key must be a private key in PEM");
	}
	BIO_free(bio);
	return rc;
}

int ig_tls_check(const char *cert, const char *key, struct ig_error *err)
{
	EVP_PKEY *private_key = NULL;
	X509 *certificate = NULL;
	int rc;

	ERR_clear_error();
	rc = read_certificate(cert, &certificate, err);
	if (!rc)
		rc = read_private_key(key, &private_key, err);
	if (!rc && X509_check_private_key(certificate, private_key) != 1)
		rc = ig_fail(err, -EINVAL, "%.200s: is not the private key of %.200s", key, cert);
	ERR_clear_error();
	EVP_PKEY_free(private_key);
	X509_free(certificate);
	return rc;
}
