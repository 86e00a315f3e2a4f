/* test_gguf.c: what is read from a GGUF file, and every refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/formats/checkpoint.h"
#include "tiny_gguf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t ne_small[4] = { 32, 2, 1, 1 };

/* A file with one key of each type and two tensors. */
static void good_file(struct gw *w)
{
	static const char *const strs[] = { "one", "", "three" };
	static const int32_t ints[] = { 1, -2, 3 };
	uint64_t ne[4] = { 64, 3, 2, 1 };

	gw_init(w);
	gw_u32(w, "general.alignment", 64);
	gw_str(w, "general.architecture", "llama");
	gw_f32(w, "x.f32", 0.5f);
	gw_key(w, "x.f64", GW_F64);
	gw_put(w, &(double){ 0.25 }, 8);
	gw_bool(w, "x.bool", true);
	gw_key(w, "x.u8", GW_U8);
	gw_number(w, 200, 1);
	gw_key(w, "x.i8", GW_I8);
	gw_number(w, 0xff, 1);
	gw_key(w, "x.u16", GW_U16);
	gw_number(w, 65535, 2);
	gw_key(w, "x.i16", GW_I16);
	gw_number(w, 5, 2);
	gw_key(w, "x.i32", GW_I32);
	gw_number(w, 0xffffffff, 4);
	gw_key(w, "x.u64", GW_U64);
	gw_number(w, UINT64_MAX, 8);
	gw_key(w, "x.i64", GW_I64);
	gw_number(w, 77, 8);
	gw_strs(w, "x.strs", strs, 3);
	gw_i32s(w, "x.ints", ints, 3);
	gw_key(w, "x.floats", GW_ARRAY);
	gw_number(w, GW_F32, 4);
	gw_number(w, 2, 8);
	gw_put(w, (float[]){ 1.5f, -2.5f }, 8);
	gw_key(w, "x.empty", GW_ARRAY);
	gw_number(w, GW_STRING, 4);
	gw_number(w, 0, 8);
	gw_tensor(w, "a.weight", ne, 3, IG_Q4_1, 0);
	gw_tensor(w, "b.weight", ne_small, 1, IG_F32, 256);
	gw_data(w, 64, 256 + 128);
	memcpy(w->data + w->len - 128, (float[]){ 42.0f }, 4);
}

static int open_it(const struct gw *w, struct ig_checkpoint **g, struct ig_error *err)
{
	*err = (struct ig_error){ 0 };
	return ig_checkpoint_open_memory(w->data, w->len, "test.gguf", g, err);
}

/* The file is refused with a text that has all of these in it. */
static void refused(struct gw *w, const char *a, const char *b)
{
	struct ig_checkpoint *g;
	struct ig_error err;

	assert_int_equal(open_it(w, &g, &err), -EINVAL);
	assert_null(g);
	assert_int_equal(err.code, -EINVAL);
	if (!strstr(err.text, "test.gguf: ") || !strstr(err.text, a) || (b && !strstr(err.text, b)))
		fail_msg("wanted '%s' and '%s' in: %s", a, b ? b : "", err.text);
	gw_finish(w);
}

static int collect(void *ctx, uint64_t i, const char *s, size_t len)
{
	char *out = ctx;

	assert_true(i < 3);
	strncat(out, s, len);
	strcat(out, "|");
	return 0;
}

static int stop_at_1(void *ctx, uint64_t i, const char *s, size_t len)
{
	++*(int *)ctx;
	return i == 1 ? -ECANCELED : 0;
}

static void reads_everything(void **state)
{
	struct gw w;
	struct ig_checkpoint *g;
	struct ig_error err;
	uint32_t u = 0;
	float f = 0, floats[2];
	bool b = false;
	const char *s;
	size_t len;
	uint64_t n;
	int32_t ints[3];
	char text[64] = "";
	int calls = 0;

	good_file(&w);
	assert_int_equal(open_it(&w, &g, &err), 0);
	assert_string_equal(ig_checkpoint_label(g), "test.gguf");
	assert_string_equal(ig_checkpoint_format(g), "GGUF");
	assert_int_equal(ig_checkpoint_file_bytes(g), w.len);
	assert_int_equal(ig_checkpoint_str(g, "general.architecture", &s, &len, &err), 0);
	assert_int_equal(len, 5);
	assert_memory_equal(s, "llama", 5);
	assert_int_equal(ig_checkpoint_f32(g, "x.f32", &f, &err), 0);
	assert_true(f == 0.5f);
	assert_int_equal(ig_checkpoint_f32(g, "x.f64", &f, &err), 0);
	assert_true(f == 0.25f);
	assert_int_equal(ig_checkpoint_bool(g, "x.bool", &b, &err), 0);
	assert_true(b);
	assert_int_equal(ig_checkpoint_u32(g, "x.u8", &u, &err), 0);
	assert_int_equal(u, 200);
	assert_int_equal(ig_checkpoint_u32(g, "x.u16", &u, &err), 0);
	assert_int_equal(u, 65535);
	assert_int_equal(ig_checkpoint_u32(g, "x.i16", &u, &err), 0);
	assert_int_equal(u, 5);
	assert_int_equal(ig_checkpoint_u32(g, "x.i64", &u, &err), 0);
	assert_int_equal(u, 77);
	assert_int_equal(ig_checkpoint_array_len(g, "x.strs", &n, &err), 0);
	assert_int_equal(n, 3);
	assert_int_equal(ig_checkpoint_array_len(g, "x.empty", &n, &err), 0);
	assert_int_equal(n, 0);
	assert_int_equal(ig_checkpoint_array_strs(g, "x.strs", collect, text, &err), 0);
	assert_string_equal(text, "one||three|");
	assert_int_equal(ig_checkpoint_array_strs(g, "x.strs", stop_at_1, &calls, &err),
			 -ECANCELED);
	assert_int_equal(calls, 2);
	assert_int_equal(ig_checkpoint_array_i32(g, "x.ints", ints, 3, &err), 0);
	assert_true(ints[0] == 1 && ints[1] == -2 && ints[2] == 3);
	assert_int_equal(ig_checkpoint_array_f32(g, "x.floats", floats, 2, &err), 0);
	assert_true(floats[0] == 1.5f && floats[1] == -2.5f);

	assert_int_equal(ig_checkpoint_n_tensors(g), 2);
	const struct ig_checkpoint_tensor *t = ig_checkpoint_tensor(g, 0);
	assert_string_equal(t->name, "a.weight");
	assert_int_equal(t->dtype, IG_Q4_1);
	assert_int_equal(t->n_dims, 3);
	assert_int_equal(t->n_cols, 64);
	assert_int_equal(t->n_rows, 6);
	assert_int_equal(t->n_bytes, 6 * 40);
	assert_int_equal((uintptr_t)((const char *)t->data - (const char *)w.data) % 64, 0);
	t = ig_checkpoint_find_tensor(g, "b.weight");
	assert_ptr_equal(t, ig_checkpoint_tensor(g, 1));
	assert_int_equal(t->n_rows, 1);
	assert_true(*(const float *)t->data == 42.0f);
	assert_null(ig_checkpoint_find_tensor(g, "c.weight"));
	assert_null(ig_checkpoint_tensor(g, 2));
	ig_checkpoint_close(g);
	ig_checkpoint_close(NULL);
	gw_finish(&w);
}

static void wrong_keys(void **state)
{
	struct gw w;
	struct ig_checkpoint *g;
	struct ig_error err;
	uint32_t u = 123;
	float f;
	bool b;
	const char *s;
	size_t len;
	uint64_t n;
	int32_t ints[4];
	int calls = 0;

	good_file(&w);
	assert_int_equal(open_it(&w, &g, &err), 0);
	assert_int_equal(ig_checkpoint_u32(g, "nope", &u, &err), -ENOENT);
	assert_string_equal(err.text, "test.gguf: key 'nope' is missing");
	assert_int_equal(ig_checkpoint_u32(g, "nope", &u, NULL), -ENOENT);
	assert_int_equal(ig_checkpoint_u32(g, "x.f32", &u, &err), -EINVAL);
	assert_string_equal(err.text,
			    "test.gguf: key 'x.f32' is a value of type f32, not an integer");
	assert_int_equal(ig_checkpoint_u32(g, "x.strs", &u, &err), -EINVAL);
	assert_string_equal(err.text,
			    "test.gguf: key 'x.strs' is an array of string, not an integer");
	assert_int_equal(ig_checkpoint_u32(g, "x.i8", &u, &err), -EINVAL); /* negative */
	assert_string_equal(err.text, "test.gguf: key 'x.i8' is out of range");
	assert_int_equal(ig_checkpoint_u32(g, "x.i32", &u, &err), -EINVAL);
	assert_int_equal(ig_checkpoint_u32(g, "x.u64", &u, &err), -EINVAL);
	assert_int_equal(u, 123);
	assert_int_equal(ig_checkpoint_f32(g, "x.u8", &f, &err), -EINVAL);
	assert_int_equal(ig_checkpoint_bool(g, "x.u8", &b, &err), -EINVAL);
	assert_int_equal(ig_checkpoint_str(g, "x.strs", &s, &len, &err), -EINVAL);
	assert_int_equal(ig_checkpoint_array_len(g, "x.u8", &n, &err), -EINVAL);
	assert_int_equal(ig_checkpoint_array_strs(g, "x.ints", stop_at_1, &calls, &err), -EINVAL);
	assert_int_equal(ig_checkpoint_array_strs(g, "x.u8", stop_at_1, &calls, &err), -EINVAL);
	assert_int_equal(calls, 0);
	assert_int_equal(ig_checkpoint_array_i32(g, "x.ints", ints, 4, &err), -EINVAL);
	assert_string_equal(err.text, "test.gguf: key 'x.ints' has 3 elements, not 4");
	assert_int_equal(ig_checkpoint_array_i32(g, "x.strs", ints, 1, &err), -EINVAL);
	assert_int_equal(ig_checkpoint_array_i32(g, "x.floats", ints, 1, &err), -EINVAL);
	assert_int_equal(ig_checkpoint_array_f32(g, "x.ints", &f, 1, &err), -EINVAL);
	ig_checkpoint_close(g);
	gw_finish(&w);

	gw_init(&w);
	gw_f32(&w, "inf", 1e38f * 10);
	gw_key(&w, "wide", GW_ARRAY);
	gw_number(&w, GW_U32, 4);
	gw_number(&w, 2, 8);
	gw_number(&w, 7, 4);
	gw_number(&w, 0x80000000, 4);
	assert_int_equal(open_it(&w, &g, &err), 0);
	assert_int_equal(ig_checkpoint_f32(g, "inf", &f, &err), -EINVAL);
	assert_int_equal(ig_checkpoint_array_i32(g, "wide", ints, 1, &err), 0);
	assert_int_equal(ig_checkpoint_array_i32(g, "wide", ints, 2, &err), -EINVAL);
	assert_string_equal(err.text, "test.gguf: key 'wide': element 1 is out of range");
	ig_checkpoint_close(g);
	gw_finish(&w);
}

static void wrong_headers(void **state)
{
	struct gw w;

	gw_init(&w);
	memcpy(w.data, "GGML", 4);
	refused(&w, "not a GGUF file", "47 47 4d 4c");
	gw_init(&w);
	w.len = 3;
	refused(&w, "not a GGUF file", "3 bytes long");
	gw_init(&w);
	w.len = 0;
	refused(&w, "not a GGUF file", "0 bytes long");
	gw_init(&w);
	w.len = 20;
	refused(&w, "the file ends inside the header", "offset 16");
	for (uint32_t v = 1; v <= 2; v++) {
		gw_init(&w);
		gw_patch(&w, 4, v, 4);
		refused(&w, v == 1 ? "version 1 is too old" : "version 2 is too old", "offset 4");
	}
	gw_init(&w);
	gw_patch(&w, 4, 4, 4);
	refused(&w, "unknown GGUF version 4", NULL);
	gw_init(&w);
	gw_patch(&w, 4, 0, 4);
	refused(&w, "unknown GGUF version 0", NULL);
	gw_init(&w);
	gw_patch(&w, 4, 0x03000000, 4);
	refused(&w, "big-endian", NULL);
	gw_init(&w);
	gw_patch(&w, 8, UINT64_MAX, 8);
	refused(&w, "the header counts 18446744073709551615 tensors", "offset 8");
	gw_init(&w);
	gw_patch(&w, 16, 1000000, 8);
	refused(&w, "the header counts 1000000 keys in a file of 24 bytes", "offset 16");
	gw_init(&w);
	gw_patch(&w, 16, 1, 8);
	refused(&w, "keys", NULL);
}

static void wrong_key_entries(void **state)
{
	struct gw w;

	gw_init(&w);
	gw_u32(&w, "twice", 1);
	gw_u32(&w, "other", 1);
	gw_u32(&w, "twice", 2);
	refused(&w, "key 'twice' is a duplicate", "offset");
	gw_init(&w);
	gw_u32(&w, "", 1);
	gw_u32(&w, "y", 1); /* so that the count can be right */
	refused(&w, "a key is empty", NULL);
	gw_init(&w);
	gw_u32(&w, "a#b", 1);
	w.data[24 + 8 + 1] = 0;
	refused(&w, "a key 'a?b' has a NUL in it", NULL);
	gw_init(&w);
	gw_u32(&w, "a", 1);
	gw_patch(&w, 24, UINT64_MAX - 3, 8);
	refused(&w, "a key says it is 18446744073709551612 bytes long", "offset 24");
	gw_init(&w);
	char *big = calloc(1, 65537);
	memset(big, 'k', 65536);
	gw_u32(&w, big, 1);
	free(big);
	refused(&w, "a key is 65536 bytes long, at most 65535", NULL);
	gw_init(&w);
	gw_u32(&w, "a", 1);
	gw_patch(&w, 24 + 8 + 1, 13, 4);
	refused(&w, "key 'a' has unknown type 13", NULL);
	gw_init(&w);
	gw_bool(&w, "flag", true);
	w.data[w.len - 1] = 2;
	refused(&w, "key 'flag': a bool is 2", NULL);
	gw_init(&w);
	gw_key(&w, "flags", GW_ARRAY);
	gw_number(&w, GW_BOOL, 4);
	gw_number(&w, 3, 8);
	gw_put(&w, "\0\1\7", 3);
	refused(&w, "key 'flags': a bool is 7", NULL);
	gw_init(&w);
	gw_str(&w, "s", "text");
	gw_patch(&w, w.len - 12, 5, 8);
	refused(&w, "a string says it is 5 bytes long, the file has 4 left", NULL);
	gw_init(&w);
	gw_key(&w, "deep", GW_ARRAY);
	gw_number(&w, GW_ARRAY, 4);
	gw_number(&w, 1, 8);
	refused(&w, "key 'deep' is an array of arrays", NULL);
	gw_init(&w);
	gw_key(&w, "odd", GW_ARRAY);
	gw_number(&w, 99, 4);
	gw_number(&w, 1, 8);
	refused(&w, "key 'odd' is an array of unknown type 99", NULL);
	gw_init(&w);
	gw_key(&w, "long", GW_ARRAY);
	gw_number(&w, GW_U64, 4);
	gw_number(&w, UINT64_MAX / 8 + 2, 8);
	gw_number(&w, 0, 8);
	refused(&w, "key 'long' says it has 2305843009213693953 elements", "space for 1");
	gw_init(&w);
	gw_key(&w, "strs", GW_ARRAY);
	gw_number(&w, GW_STRING, 4);
	gw_number(&w, 1, 8);
	gw_number(&w, 1, 8);
	refused(&w, "a string in an array says it is 1 bytes long, the file has 0 left", NULL);
}

static void alignment(struct gw *w, uint32_t v)
{
	gw_init(w);
	gw_u32(w, "general.alignment", v);
	gw_tensor(w, "t", ne_small, 1, IG_F32, 0);
	gw_data(w, 32, 128);
}

static void wrong_tensors(void **state)
{
	static const uint32_t bad_alignments[] = { 0, 1, 4, 24, 33, 0xffffffff };
	struct gw w;
	struct ig_checkpoint *g;
	struct ig_error err;

	for (size_t i = 0; i < sizeof bad_alignments / sizeof bad_alignments[0]; i++) {
		alignment(&w, bad_alignments[i]);
		refused(&w, "general.alignment is ", "not a power of two");
	}
	alignment(&w, 8);
	assert_int_equal(open_it(&w, &g, &err), 0);
	ig_checkpoint_close(g);
	gw_finish(&w);
	alignment(&w, 0x80000000);
	refused(&w, "ends beyond the file's", NULL);
	gw_init(&w);
	gw_str(&w, "general.alignment", "32");
	refused(&w, "key 'general.alignment' is a value of type string", NULL);

	struct {
		const char *name;
		uint64_t ne[5];
		uint32_t n_dims, dtype;
		uint64_t offset;
		const char *text;
	} cases[] = {
		{ "t", { 32 }, 0, IG_F32, 0, "has 0 dimensions" },
		{ "t", { 1, 1, 1, 1, 1 }, 5, IG_F32, 0, "has 5 dimensions" },
		{ "t", { 32, 0 }, 2, IG_F32, 0, "has size 0 in dimension 1" },
		{ "t", { 32, UINT64_MAX }, 2, IG_F32, 0, "has size 18446744073709551615" },
		{ "t", { 1, 1ull << 31, 1ull << 31, 4 }, 4, IG_F32, 0, "more rows than" },
		{ "t", { 1, 1ull << 62, 2 }, 3, IG_F32, 0, "more rows than" },
		{ "t", { 1ull << 61, 8 }, 2, IG_F32, 0, "more bytes than" },
		{ "t", { 1ull << 62 }, 1, IG_F32, 0, "which F32 can't hold" },
		{ "t", { 33 }, 1, IG_Q4_1, 0, "rows of 33 values, which Q4_1 can't hold" },
		{ "t", { 256 }, 1, 16, 0, "type 16 (IQ2_XXS); Ingot reads" },
		{ "t", { 256 }, 1, 77, 0, "type 77 (type 77); Ingot reads" },
		{ "t", { 32 }, 1, IG_I32, 0, "type 26 (I32); Ingot reads" },
		{ "t", { 32 }, 1, IG_F32, 4, "not a multiple of 32" },
		{ "t", { 32 }, 1, IG_F32, 160, "ends beyond the file's" },
		{ "t", { 32 }, 1, IG_F32, UINT64_MAX - 31, "ends beyond the file's" },
		{ "t", { 96 }, 1, IG_F32, 0, "ends beyond the file's" },
		{ "", { 32 }, 1, IG_F32, 0, "name is empty" },
		{ "0123456789012345678901234567890123456789012345678901234567890123456",
		  { 32 },
		  1,
		  IG_F32,
		  0,
		  "name is 67 bytes long, at most 64" },
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		gw_init(&w);
		gw_tensor(&w, cases[i].name, cases[i].ne, cases[i].n_dims, cases[i].dtype,
			  cases[i].offset);
		gw_data(&w, 32, 256);
		refused(&w, cases[i].text, i == 9 ? "tensor 't' has" : NULL);
	}

	gw_init(&w);
	gw_tensor(&w, "same", ne_small, 1, IG_F32, 0);
	gw_tensor(&w, "other", ne_small, 1, IG_F32, 0);
	gw_tensor(&w, "same", ne_small, 1, IG_F32, 128);
	gw_data(&w, 32, 256);
	refused(&w, "tensor 'same' is a duplicate", NULL);
	gw_init(&w);
	gw_tensor(&w, "a#b", ne_small, 1, IG_F32, 0);
	w.data[24 + 8 + 1] = 0;
	gw_data(&w, 32, 256);
	refused(&w, "a tensor's name 'a?b' has a NUL in it", NULL);
}

static int never(void *ctx, uint64_t i, const char *s, size_t len) { return 0; }

/* Whatever is cut off or changed, there is an error or a file, never a crash.  Each
 * length has memory of its own, so that a sanitizer sees a byte too far. */
static void every_truncation(void **state)
{
	struct gw w;
	struct ig_checkpoint *g;
	struct ig_error err;

	good_file(&w);
	for (size_t n = 0; n < w.len; n++) {
		unsigned char *copy = malloc(n ? n : 1);
		memcpy(copy, w.data, n);
		err = (struct ig_error){ 0 };
		int rc = ig_checkpoint_open_memory(copy, n, "cut", &g, &err);
		/* Padding after the last tensor's 128 bytes there is none. */
		assert_int_equal(rc, -EINVAL);
		assert_int_equal(err.code, -EINVAL);
		assert_memory_equal(err.text, "cut: ", 5);
		free(copy);
	}
	for (size_t i = 0; i < w.len - 256; i++) {
		unsigned char before = w.data[i];
		for (unsigned k = 0; k < 4; k++) {
			w.data[i] = (unsigned char)(k == 0 ? 0 : k == 1 ? 0xff : before ^ (k << 4));
			if (ig_checkpoint_open_memory(w.data, w.len, "changed", &g, &err) == 0) {
				ig_checkpoint_array_strs(g, "x.strs", never, NULL, NULL);
				ig_checkpoint_close(g);
			}
		}
		w.data[i] = before;
	}
	gw_finish(&w);
}

/* Many keys and tensors: linear, and all found. */
static void many_entries(void **state)
{
	enum { N = 20000 };
	struct gw w;
	struct ig_checkpoint *g;
	struct ig_error err;
	char name[32];
	uint32_t v;

	gw_init(&w);
	for (uint32_t i = 0; i < N; i++) {
		snprintf(name, sizeof name, "key.%u", i);
		gw_u32(&w, name, i);
	}
	for (uint32_t i = 0; i < N; i++) {
		snprintf(name, sizeof name, "tensor.%u", i);
		gw_tensor(&w, name, ne_small, 1, IG_Q8_0, (uint64_t)i * 64);
	}
	gw_data(&w, 32, (size_t)N * 64);
	assert_int_equal(open_it(&w, &g, &err), 0);
	for (uint32_t i = 0; i < N; i++) {
		snprintf(name, sizeof name, "key.%u", i);
		assert_int_equal(ig_checkpoint_u32(g, name, &v, &err), 0);
		assert_int_equal(v, i);
		snprintf(name, sizeof name, "tensor.%u", i);
		assert_ptr_equal(ig_checkpoint_find_tensor(g, name), ig_checkpoint_tensor(g, i));
	}
	ig_checkpoint_close(g);
	gw_finish(&w);
}

static void files(void **state)
{
	char path[] = "/tmp/ingot-gguf-XXXXXX";
	int fd = mkstemp(path);
	struct gw w;
	struct ig_checkpoint *g;
	struct ig_error err;
	char text[600];

	assert_true(fd >= 0);
	good_file(&w);
	assert_int_equal(write(fd, w.data, w.len), w.len);
	assert_int_equal(ig_checkpoint_open(path, NULL, &g, &err), 0);
	const struct ig_checkpoint_tensor *t = ig_checkpoint_find_tensor(g, "b.weight");
	assert_true(*(const float *)t->data == 42.0f);
	/* Dropped pages come back from the file; what is not of the map is left alone. */
	ig_checkpoint_drop_pages(g, t->data, t->n_bytes);
	ig_checkpoint_drop_pages(g, (const char *)t->data - 300, 300);
	ig_checkpoint_drop_pages(g, t->data, UINT64_MAX);
	ig_checkpoint_drop_pages(g, &w, sizeof w);
	assert_true(*(const float *)t->data == 42.0f);
	ig_checkpoint_close(g);

	assert_int_equal(ftruncate(fd, (off_t)w.len - 1), 0);
	assert_int_equal(ig_checkpoint_open(path, NULL, &g, &err), -EINVAL);
	assert_non_null(strstr(err.text, "tensor 'b.weight'"));
	assert_memory_equal(err.text, path, strlen(path));
	assert_int_equal(ftruncate(fd, 10), 0);
	assert_int_equal(ig_checkpoint_open(path, NULL, &g, &err), -EINVAL);
	snprintf(text, sizeof text, "%s: 10 bytes can't be a GGUF file", path);
	assert_string_equal(err.text, text);
	close(fd);
	unlink(path);
	assert_int_equal(ig_checkpoint_open(path, NULL, &g, &err), -ENOENT);
	assert_null(g);
	assert_non_null(strstr(err.text, "can't open"));

	assert_int_equal(ig_checkpoint_open("/dev/null", NULL, &g, &err), -EINVAL);
	assert_string_equal(err.text, "/dev/null: not a regular file");
	assert_int_equal(mkfifo(path, 0600), 0); /* must not wait for a writer */
	assert_int_equal(ig_checkpoint_open(path, NULL, &g, &err), -EINVAL);
	unlink(path);

	/* The end of a long path is shown. */
	char *longest = malloc(3001);
	memset(longest, 'd', 3000);
	memcpy(longest + 2990, "/tail.gguf", 11);
	assert_true(ig_checkpoint_open(longest, NULL, &g, &err) < 0);
	assert_memory_equal(err.text, "...ddd", 6);
	assert_non_null(strstr(err.text, "/tail.gguf: can't open"));
	free(longest);

	assert_int_equal(ig_checkpoint_open_memory(w.data + 1, w.len - 1, "odd", &g, &err),
			 -EINVAL);
	assert_non_null(strstr(err.text, "not aligned"));
	gw_finish(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_everything), cmocka_unit_test(wrong_keys),
		cmocka_unit_test(wrong_headers),    cmocka_unit_test(wrong_key_entries),
		cmocka_unit_test(wrong_tensors),    cmocka_unit_test(every_truncation),
		cmocka_unit_test(many_entries),	    cmocka_unit_test(files),
	};

	return cmocka_run_group_tests_name("model/gguf", tests, NULL, NULL);
}
