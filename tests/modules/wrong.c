/*
 * wrong.c: one module, built once as it should be and once for each way in which
 * a module can be wrong.  WRONG_… on the command line says which.  Its init and
 * its op must never run in a wrong one: they abort.
 */
#include <ingot/arch.h>
#include <ingot/op.h>
#include <stdlib.h>

#ifdef WRONG_MAGIC
#define MAGIC 0x21444142u
#else
#define MAGIC IG_MODULE_MAGIC
#endif

#ifdef WRONG_ABI
#define ABI 99u
#else
#define ABI IG_MODULE_ABI
#endif

#ifdef WRONG_SIZE
#define SIZE ((uint32_t)sizeof(struct ig_module) - 8u)
#else
#define SIZE ((uint32_t)sizeof(struct ig_module))
#endif

#ifdef WRONG_BUILD_ID
#define BUILD "ffffffffffffffff"
#elif defined(WRONG_UNTERMINATED)
/* as long as the field: no room for a NUL */
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

static int check(struct ig_op_shape *s, struct ig_error *err)
{
	return ig_fail(err, -22, "%s is never recorded", OP_NAME);
}

static void reference(const struct ig_op_call *call)
{
	abort();
}

static const struct ig_op op = {
	.struct_size = OP_SIZE,
	.params_size = sizeof(uint32_t),
	.name = OP_NAME,
	.check = check,
	.reference = reference,
};

static const struct ig_op *const ops[] = { &op, NULL };

#ifdef WRONG_MISSING_OP
static const char *const requires_ops[] = { "zeppelin_op", NULL };
#else
static const char *const requires_ops[] = { "embed", NULL };
#endif

static int init(const struct ig_host *host)
{
#ifdef WRONG_INIT
	return -5; /* EIO */
#elif defined(RIGHT)
	return host->abi_version == IG_MODULE_ABI ? 0 : -22;
#else
	abort();
#endif
}

#ifdef WRONG_NO_SYMBOL
#define ingot_module another_name
#endif

extern const struct ig_module ingot_module;
__attribute__((visibility("default"))) const struct ig_module ingot_module = {
	.magic = MAGIC,
	.abi_version = ABI,
	.struct_size = SIZE,
	.build_id = BUILD,
	.name = "wrong-on-purpose",
	.version = "1",
	.requires_ops = requires_ops,
	.ops = ops,
	.init = init,
};
