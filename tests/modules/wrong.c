/*
 * wrong.c: one module, built once as it should be and once for each way in which
 * a module can be wrong.  WRONG_… on the command line says which.  Its init and
 * its op must never run in a wrong one: they abort.
 */
#include <ingot/build_id.h>
#include <ingot/kvcache.h>
#include <ingot/module.h>
#include <ingot/op.h>
#include <stdlib.h>

#ifdef WRONG_MAGIC
#define MAGIC 0x21444142u
#else
#define MAGIC IG_MODULE_MAGIC
#endif

#ifdef WRONG_MAJOR
#define MAJOR 99
#else
#define MAJOR IG_ABI_MAJOR
#endif

#ifdef WRONG_MINOR
#define MINOR 77
#else
#define MINOR IG_ABI_MINOR
#endif

#if defined(WRONG_SHORT)
#define SIZE 88u
#elif defined(WRONG_LONG)
#define SIZE ((uint32_t)sizeof(struct ig_module) + 8u)
#else
#define SIZE ((uint32_t)sizeof(struct ig_module))
#endif

#if defined(WRONG_BUILD_ID) || defined(FOREIGN)
#define BUILD "ffffffffffffffff"
#elif defined(WRONG_UNTERMINATED)
/* as long as the field: no space for a NUL */
#define BUILD                                                                                      \
	{ '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b',                              \
	  'c', 'd', 'e', 'f', '0', '1', '2', '3', '4', '5', '6', '7' }
#else
#define BUILD IG_BUILD_ID
#endif

#ifdef WRONG_TAKEN_NAME
#define OP_NAME "embed"
#else
#define OP_NAME "harmless"
#endif

#ifdef WRONG_OP_SIZE
#define OP_SIZE 8u
#else
#define OP_SIZE ((uint32_t)sizeof(struct ig_op))
#endif

#ifndef FOREIGN
static int check(struct ig_op_shape *s, struct ig_error *err)
{
	return ig_fail(err, -22, "%s is never recorded", OP_NAME);
}

static void reference(const struct ig_op_launch *call) { abort(); }

static const struct ig_op op = {
	.struct_size = OP_SIZE,
	.params_size = sizeof(uint32_t),
	.name = OP_NAME,
	.version = 1,
	.check = check,
	.reference = reference,
};

static const struct ig_op *const ops[] = { &op, NULL };
#endif

static const struct ig_op_version requires_ops[] = {
#if defined(WRONG_MISSING_OP)
	{ "zeppelin_op", 1 },
#elif defined(WRONG_OLD_OP)
	{ "embed", 41 },
#else
	{ "embed", 1 },
#endif
	{ NULL },
};

#ifdef WRONG_SERVICE
static const struct ig_kvcache_service service = {
	.struct_size = sizeof service,
	.version = 43,
	.name = "harmless",
};
#endif

static const struct ig_module_option options[] = {
#if defined(WRONG_OPTION)
	{ .key = "late", .type = IG_OPTION_TIME, .max = 10, .number = 11, .help = "Too late." },
#elif defined(WRONG_OPTION_KEY)
	{ .key = "Late", .type = IG_OPTION_TIME, .max = 10, .help = "Too late." },
#elif defined(WRONG_CHOICE)
	{ .key = "hue", .type = IG_OPTION_CHOICE, .text = "red", .help = "Which one." },
#endif
	{ .key = NULL },
};

static int init(const struct ig_host *host)
{
#if defined(WRONG_INIT)
	return -5; /* EIO */
#elif defined(RIGHT)
	return host->abi_minor == IG_ABI_MINOR && host->kernels(BUILD) ? 0 : -22;
#elif defined(FOREIGN)
	return host->kernels(BUILD) ? -22 : 0;
#else
	abort();
#endif
}

#ifdef WRONG_NO_SYMBOL
#define ingot_module another_name
extern const struct ig_module another_name;
#endif

const struct ig_module ingot_module = {
	.head = { MAGIC, MAJOR, MINOR, SIZE, 0 },
#ifdef WRONG_NAME
	.name = "path",
#else
	.name = "wrong-on-purpose",
#endif
	.version = "1",
	.requires_ops = requires_ops,
	.init = init,
	.build_id = BUILD,
	.options = options,
#ifndef FOREIGN
	.ops = ops,
#endif
#ifdef WRONG_SERVICE
	.kvcache = &service,
#endif
};
