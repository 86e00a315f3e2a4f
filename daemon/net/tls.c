/*
 * tls.c: the server's certificate.  libwebsockets does not report what is wrong with the files, and
 * a certificate that it replaces later leaves one with another kind of key in place.  So they are
 * read here, and each handshake gets the current one.
 */
#include "daemon/net/net_private.h"

#if defined(LWS_WITH_GNUTLS) || defined(LWS_WITH_MBEDTLS) || defined(LWS_WITH_WOLFSSL)
#error "libwebsockets must be built with OpenSSL (from 5.0 on that takes LWS_WITH_HTTP3=OFF)"
#endif

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ig_certificate {
	X509 *leaf;
	EVP_PKEY *key;
	STACK_OF(X509) * chain; /* without the leaf */
};

/* "FILE: what: the library's reason" */
static int fail(struct ig_error *err, const char *path, const char *what)
{
	unsigned long e = ERR_peek_last_error();
	const char *reason = e ? ERR_reason_error_string(e) : NULL;

	return ig_fail(err, -EINVAL, "%.300s: %s%s%s", path, what, reason ? ": " : "",
		       reason ? reason : "");
}

/* There is nobody to ask for a password. */
static int no_password(char *buf, int size, int writing, void *ctx)
{
	bool *asked = ctx;

	if (asked)
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
		ig_fail(err, -EINVAL, "%.300s: is not a file", path);
	} else {
		bio = BIO_new_fd(fd, BIO_CLOSE);
		if (!bio)
			ig_fail(err, -ENOMEM, "%.300s: out of memory", path);
	}
	if (!bio && fd >= 0)
		close(fd);
	return bio;
}

static int read_certificate(const char *path, struct ig_certificate *c, struct ig_error *err)
{
	struct stat st;
	BIO *bio = open_file(path, &st, err);
	int rc = 0;

	if (!bio)
		return -EINVAL;
	c->leaf = PEM_read_bio_X509_AUX(bio, NULL, no_password, NULL);
	c->chain = sk_X509_new_null();
	if (!c->leaf)
		rc = fail(err, path, "server.tls_cert must be a certificate in PEM");
	else if (!c->chain)
		rc = ig_fail(err, -ENOMEM, "%.300s: out of memory", path);
	else if (X509_cmp_current_time(X509_get0_notAfter(c->leaf)) <= 0)
		rc = ig_fail(err, -EINVAL, "%.300s: the certificate has expired", path);
	/* The chain, up to the end of the file. */
	while (!rc) {
		X509 *next = PEM_read_bio_X509(bio, NULL, no_password, NULL);
		if (!next) {
			if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
				rc = fail(err, path, "a certificate of its chain can't be read");
			break;
		}
		if (!sk_X509_push(c->chain, next)) {
			X509_free(next);
			rc = ig_fail(err, -ENOMEM, "%.300s: out of memory", path);
		}
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
		rc = ig_fail(err, -EPERM,
			     "%.300s: others may use the private key (mode %04o); run: chmod "
			     "600 %.300s",
			     path, (unsigned)(st.st_mode & 07777), path);
	} else {
		*out = PEM_read_bio_PrivateKey(bio, NULL, no_password, &asked);
		if (!*out && asked)
			rc = ig_fail(err, -EINVAL,
				     "%.300s: the private key is encrypted; the daemon "
				     "needs one without a password",
				     path);
		else if (!*out)
			rc = fail(err, path, "server.tls_key must be a private key in PEM");
	}
	BIO_free(bio);
	return rc;
}

/* Whether the library accepts it: it refuses weak keys. */
static int try_out(const char *path, const struct ig_certificate *c, struct ig_error *err)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	int rc = 0;

	if (!ctx)
		return ig_fail(err, -ENOMEM, "%.300s: out of memory", path);
	if (SSL_CTX_use_cert_and_key(ctx, c->leaf, c->key, c->chain, 1) != 1)
		rc = fail(err, path, "the certificate cannot be served");
	SSL_CTX_free(ctx);
	return rc;
}

int ig_tls_load(const char *cert, const char *key, struct ig_certificate **out,
		struct ig_error *err)
{
	struct ig_certificate *c = calloc(1, sizeof *c);
	int rc;

	*out = NULL;
	if (!c)
		return ig_fail(err, -ENOMEM, "out of memory");
	ERR_clear_error();
	rc = read_certificate(cert, c, err);
	if (!rc)
		rc = read_private_key(key, &c->key, err);
	if (!rc && X509_check_private_key(c->leaf, c->key) != 1)
		rc = ig_fail(err, -EINVAL, "%.200s: is not the private key of %.200s", key, cert);
	if (!rc)
		rc = try_out(cert, c, err);
	ERR_clear_error();
	if (rc)
		ig_tls_free(c);
	else
		*out = c;
	return rc;
}

void ig_tls_free(struct ig_certificate *c)
{
	if (!c)
		return;
	X509_free(c->leaf);
	EVP_PKEY_free(c->key);
	sk_X509_pop_free(c->chain, X509_free);
	free(c);
}

/* The loop thread: a handshake begins. */
static int give(SSL *ssl, void *ctx)
{
	const struct ig_net *net = ctx;
	const struct ig_certificate *c = net->certificate;

	SSL_certs_clear(ssl);
	return SSL_use_cert_and_key(ssl, c->leaf, c->key, c->chain, 1);
}

void ig_tls_serve(struct ig_net *net, void *ssl_ctx)
{
	SSL_CTX_set_min_proto_version(ssl_ctx, TLS1_2_VERSION);
	SSL_CTX_set_options(ssl_ctx, SSL_OP_NO_RENEGOTIATION);
	/* No tickets: one of TLS 1.3 comes after the handshake.  A client that reads in one thread
	 * while another sends the request (the sync client of Python's `websockets`, whose socket
	 * has no lock around both: python/cpython issues 76714, 151508) may read it while sending,
	 * and then waits for a reply to a request that was never sent.  This happened in one of
	 * 200 handshakes.  A ticket would save a signature, not a round trip. */
	SSL_CTX_set_num_tickets(ssl_ctx, 0);
	SSL_CTX_set_cert_cb(ssl_ctx, give, net);
}

void ig_tls_goodbye(struct lws *wsi)
{
	SSL *ssl = lws_get_ssl(wsi);

	if (ssl && SSL_is_init_finished(ssl))
		SSL_shutdown(ssl);
	ERR_clear_error();
}
