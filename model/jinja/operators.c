/* operators.c: evaluates operators on two values, by Python's rules. */
#include "model/jinja/jinja_private.h"

#include <errno.h>
#include <math.h>

static int wrong_operands(struct run *r, enum op op, const struct value *a, const struct value *b)
{
	static const char *const names[] = { "+", "-", "*", "/", "//", "%", "**" };

	if (a->kind == K_UNDEFINED || b->kind == K_UNDEFINED)
		return run_undefined(r, a->kind == K_UNDEFINED ? a : b);
	return run_fail(r, -EINVAL, "%s between %s and %s", names[op], kind_name(a), kind_name(b));
}

static int integers(struct run *r, enum op op, int64_t a, int64_t b, struct value *out)
{
	int64_t v = 0;
	bool over = false;

	switch (op) {
	case OP_ADD: over = __builtin_add_overflow(a, b, &v); break;
	case OP_SUB: over = __builtin_sub_overflow(a, b, &v); break;
	case OP_MUL: over = __builtin_mul_overflow(a, b, &v); break;
	case OP_FLOORDIV:
	case OP_MOD:
		if (b == 0)
			return run_fail(r, -EINVAL, "a division by zero");
		if (b == -1) { /* INT64_MIN / -1 overflows */
			over = op == OP_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &v);
			break;
		}
		v = op == OP_MOD ? a % b : a / b;
		if (a % b != 0 && (a < 0) != (b < 0))
			v += op == OP_MOD ? b : -1;
		break;
	default: /* OP_POW, b >= 0 */
		v = 1;
		for (int64_t i = 0; i < b && !over && v != 0 && a != 1; i++) {
			if (a == -1) {
				v = b % 2 ? -1 : 1;
				break;
			}
			over = __builtin_mul_overflow(v, a, &v);
		}
	}
	if (over)
		return run_fail(r, -EINVAL, "a number does not fit into 64 bits");
	*out = v_int(v);
	return 0;
}

static int numbers(struct run *r, enum op op, const struct value *a, const struct value *b,
		   struct value *out)
{
	double x = as_float(a), y = as_float(b), v;

	if (is_int(a) && is_int(b) && op != OP_DIV && !(op == OP_POW && b->i < 0))
		return integers(r, op, a->i, b->i, out);
	if (y == 0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
		return run_fail(r, -EINVAL, "a division by zero");
	switch (op) {
	case OP_ADD: v = x + y; break;
	case OP_SUB: v = x - y; break;
	case OP_MUL: v = x * y; break;
	case OP_DIV: v = x / y; break;
	case OP_FLOORDIV: v = floor(x / y); break;
	case OP_MOD:
		v = fmod(x, y);
		if (v != 0 && (v < 0) != (y < 0))
			v += y;
		break;
	default: v = pow(x, y);
	}
	*out = v_float(v);
	return 0;
}

static int repeat(struct run *r, const struct value *of, int64_t times, struct value *out)
{
	struct builder b;
	struct list *l;
	int rc;

	if (times < 0)
		times = 0;
	if (is_str(of)) {
		builder_init(&b, r);
		for (int64_t i = 0; i < times && of->len && !b.failed; i++)
			builder_value(&b, of);
		return builder_end(&b, out);
	}
	if ((rc = list_new(r, 0, &l)))
		return rc;
	for (int64_t i = 0; i < times && of->list->n; i++)
		for (size_t k = 0; k < of->list->n; k++)
			if ((rc = run_charge(r, 0)) || (rc = list_add(r, l, &of->list->items[k])))
				return rc;
	*out = v_list(of->kind, l);
	return 0;
}

static int add_lists(struct run *r, const struct value *a, const struct value *b, struct value *out)
{
	struct list *l;
	int rc = list_new(r, a->list->n + b->list->n, &l);

	if (rc || (rc = run_charge(r, (a->list->n + b->list->n) * sizeof *l->items)))
		return rc;
	if (a->list->n)
		memcpy(l->items, a->list->items, a->list->n * sizeof *l->items);
	if (b->list->n)
		memcpy(l->items + a->list->n, b->list->items, b->list->n * sizeof *l->items);
	l->n = a->list->n + b->list->n;
	*out = v_list(a->kind, l);
	return 0;
}

static int add_strings(struct run *r, const struct value *a, const struct value *b,
		       struct value *out)
{
	bool safe = a->safe || b->safe;
	struct value left = *a, right = *b;
	struct builder text;
	int rc;

	if (safe && ((rc = str_escape(r, a, &left)) || (rc = str_escape(r, b, &right))))
		return rc;
	builder_init(&text, r);
	builder_value(&text, &left);
	builder_value(&text, &right);
	rc = builder_end(&text, out);
	out->safe = safe;
	return rc;
}

int eval_binary(struct run *r, enum op op, const struct value *a, const struct value *b,
		struct value *out)
{
	if (is_number(a) && is_number(b))
		return numbers(r, op, a, b, out);
	if (op == OP_ADD && is_str(a) && is_str(b))
		return add_strings(r, a, b, out);
	if (op == OP_ADD && is_list(a) && a->kind == b->kind)
		return add_lists(r, a, b, out);
	if (op == OP_MUL && (is_str(a) || is_list(a)) && is_int(b))
		return repeat(r, a, b->i, out);
	if (op == OP_MUL && (is_str(b) || is_list(b)) && is_int(a))
		return repeat(r, b, a->i, out);
	if (op == OP_MOD && is_str(a) && b->kind != K_UNDEFINED)
		return str_percent(r, a, b, out);
	return wrong_operands(r, op, a, b);
}

int eval_compare(struct run *r, enum op op, const struct value *a, const struct value *b, bool *out)
{
	int c = 0, rc;

	switch (op) {
	case OP_EQ:
	case OP_NE:
		rc = value_equal(r, a, b, out);
		*out = *out == (op == OP_EQ);
		return rc;
	case OP_IN:
	case OP_NOT_IN:
		rc = value_contains(r, b, a, out);
		*out = *out == (op == OP_IN);
		return rc;
	default: break;
	}
	if ((rc = value_order(r, a, b, &c)))
		return rc;
	/* NaN is not less than, equal to or greater than anything. */
	bool nan = (a->kind == K_FLOAT && isnan(a->f)) || (b->kind == K_FLOAT && isnan(b->f));
	*out = !nan && (op == OP_LT ? c < 0 : op == OP_LE ? c <= 0 : op == OP_GT ? c > 0 : c >= 0);
	return 0;
}
