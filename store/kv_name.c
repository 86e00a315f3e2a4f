/* kv_name.c: see kv_name.h.  libcrypto's SHA-256. */
#include "store/kv_name.h"

#include "base/hex.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/evp.h>

#define SUM_BYTES 32

struct ig_kv_namer {
	EVP_MD_CTX *ctx;
	bool failed; /* since begin */
};

void ig_kv_name_write(const struct ig_kv_name *name, char out[IG_KV_NAME_TEXT])
{
	for (size_t i = 0; i < IG_KV_NAME_BYTES; i++)
		snprintf(out + 2 * i, 3, "%02x", name->bytes[i]);
}

bool ig_kv_name_read(const char *text, struct ig_kv_name *out)
{
	for (size_t i = 0; i < 2 * IG_KV_NAME_BYTES; i++) {
		int digit = ig_hex_digit(text[i]); /* not of a NUL, so the text is long enough */
		if (digit < 0)
			return false;
		out->bytes[i / 2] = (uint8_t)(out->bytes[i / 2] << 4 | digit);
	}
	return true;
}

struct ig_kv_namer *ig_kv_namer_create(void)
{
	struct ig_kv_namer *n = calloc(1, sizeof *n);

	if (n)
		n->ctx = EVP_MD_CTX_new();
	if (!n || !n->ctx || !EVP_DigestInit_ex(n->ctx, EVP_sha256(), NULL)) {
		ig_kv_namer_destroy(n);
		return NULL;
	}
	return n;
}

void ig_kv_namer_destroy(struct ig_kv_namer *n)
{
	if (!n)
		return;
	EVP_MD_CTX_free(n->ctx);
	free(n);
}

static void add(struct ig_kv_namer *n, const void *data, size_t len)
{
	if (len && !EVP_DigestUpdate(n->ctx, data, len))
		n->failed = true;
}

static void begin(struct ig_kv_namer *n)
{
	/* NULL: the same function again, which is not looked up */
	n->failed = !EVP_DigestInit_ex(n->ctx, NULL, NULL);
}

static bool end(struct ig_kv_namer *n, uint8_t out[SUM_BYTES])
{
	return EVP_DigestFinal_ex(n->ctx, out, NULL) && !n->failed;
}

void ig_kv_name_begin(struct ig_kv_namer *n, const struct ig_kv_name *before)
{
	static const struct ig_kv_name none;

	begin(n);
	add(n, before ? before : &none, sizeof none);
}

void ig_kv_name_add(struct ig_kv_namer *n, const void *part, size_t len)
{
	uint64_t size = len;

	add(n, &size, sizeof size);
	add(n, part, len);
}

bool ig_kv_name_end(struct ig_kv_namer *n, struct ig_kv_name *out)
{
	uint8_t sum[SUM_BYTES];

	if (!end(n, sum))
		return false;
	memcpy(out->bytes, sum, sizeof out->bytes);
	return true;
}

int ig_kv_name_add_file(struct ig_kv_namer *n, const char *path, struct ig_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char buf[16384];
	uint64_t size = 0;
	ssize_t len = 0;

	if (fd < 0)
		return ig_fail(err, -errno, "%s: %s", path, strerror(errno));
	while ((len = read(fd, buf, sizeof buf)) > 0 || (len < 0 && errno == EINTR)) {
		if (len < 0)
			continue;
		add(n, buf, (size_t)len);
		size += (uint64_t)len;
	}
	int rc = len < 0 ? ig_fail(err, -errno, "%s: %s", path, strerror(errno)) : 0;
	close(fd);
	add(n, &size, sizeof size); /* where it ends */
	return rc;
}

bool ig_kv_name_of(struct ig_kv_namer *n, const struct ig_kv_name *before, const void *part,
		   size_t len, struct ig_kv_name *out)
{
	ig_kv_name_begin(n, before);
	ig_kv_name_add(n, part, len);
	return ig_kv_name_end(n, out);
}

bool ig_kv_sum(struct ig_kv_namer *n, const struct ig_kv_part *parts, size_t n_parts,
	       uint8_t out[32])
{
	begin(n);
	for (size_t i = 0; i < n_parts; i++)
		add(n, parts[i].data, parts[i].len);
	return end(n, out);
}
