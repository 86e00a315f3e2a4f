/* sampling.c: see sampling.h.  Sums of probabilities are in double, in the
 * candidates' order. */
#include "ops/sampling.h"

#include "ops/float.h"

struct candidate {
	float logit;
	int32_t id;
};

double ig_sample_uniform(uint64_t seed, uint64_t position)
{
	uint32_t c[4] = { (uint32_t)position, (uint32_t)(position >> 32), 0, 0 };
	uint32_t k[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };

	for (int round = 0; round < 10; round++) {
		uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
		uint32_t n[4] = { (uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
				  (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a };
		memcpy(c, n, sizeof c);
		k[0] += 0x9e3779b9u;
		k[1] += 0xbb67ae85u;
	}
	uint64_t bits = ((uint64_t)c[0] << 32 | c[1]) >> 11;
	return (double)bits * 0x1p-53;
}

uint64_t ig_sample_draw_scratch(int64_t n)
{
	return (uint64_t)n * sizeof(struct candidate);
}

/* NaN never wins. */
static float value_of(float logit)
{
	return logit != logit ? -INFINITY : logit;
}

/* a comes before b. */
static bool before(struct candidate a, struct candidate b)
{
	return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

static void sift_down(struct candidate *h, int64_t n, int64_t i)
{
	struct candidate v = h[i];
	for (;;) {
		int64_t child = 2 * i + 1;
		if (child >= n)
			break;
		if (child + 1 < n && before(h[child + 1], h[child]))
			child++;
		if (!before(h[child], v))
			break;
		h[i] = h[child];
		i = child;
	}
	h[i] = v;
}

int32_t ig_sample_draw(const float *logits, int64_t n, const struct ig_sample_params *p,
		       void *scratch)
{
	double u = ig_sample_uniform(p->seed, (uint64_t)p->position);
	float top = -INFINITY, inv = 1.0f / p->temperature;
	int64_t top_id = 0;

	for (int64_t i = 0; i < n; i++) {
		float v = value_of(logits[i]);
		if (v > top) {
			top = v;
			top_id = i;
		}
	}
	/* Nothing finite to weigh, or a temperature so small that only the top counts. */
	if (!(top > -INFINITY) || top == INFINITY || !(inv < INFINITY))
		return (int32_t)top_id;

	double total = 0.0;
	for (int64_t i = 0; i < n; i++)
		total += (double)ig_expf((value_of(logits[i]) - top) * inv);

	bool cut_k = p->top_k > 0 && p->top_k < n, cut_p = p->top_p < 1.0f;
	if (!cut_k && !cut_p) {
		/* Nothing is cut: any fixed order will do, and that of ids needs no sorting. */
		double want = u * total, sum = 0.0;
		int64_t last = top_id;
		for (int64_t i = 0; i < n; i++) {
			float w = ig_expf((value_of(logits[i]) - top) * inv);
			if (w > 0.0f)
				last = i;
			sum += (double)w;
			if (sum > want)
				return (int32_t)i;
		}
		return (int32_t)last;
	}

	/* A heap gives the candidates in order; only as many as the cuts leave are taken.
	 * Taken ones are parked behind the heap, so no second array is needed. */
	struct candidate *heap = scratch;
	for (int64_t i = 0; i < n; i++)
		heap[i] = (struct candidate){ value_of(logits[i]), (int32_t)i };
	for (int64_t i = n / 2 - 1; i >= 0; i--)
		sift_down(heap, n, i);
	int64_t limit = cut_k ? p->top_k : n, taken = 0;
	double kept = 0.0;
	if (cut_k && cut_p) {
		/* top_p is a share of what top_k leaves. */
		int64_t left = n;
		total = 0.0;
		for (int64_t i = 0; i < limit; i++) {
			struct candidate c = heap[0];
			heap[0] = heap[--left];
			sift_down(heap, left, 0);
			heap[left] = c;
			total += (double)ig_expf((c.logit - top) * inv);
		}
		for (; taken < limit; taken++) {
			kept += (double)ig_expf((heap[n - 1 - taken].logit - top) * inv);
			if (kept >= (double)p->top_p * total) {
				taken++;
				break;
			}
		}
	} else {
		int64_t left = n;
		while (taken < limit) {
			struct candidate c = heap[0];
			heap[0] = heap[--left];
			sift_down(heap, left, 0);
			heap[left] = c;
			taken++;
			kept += (double)ig_expf((c.logit - top) * inv);
			if (cut_p && kept >= (double)p->top_p * total)
				break;
		}
	}
	double want = u * kept, sum = 0.0;
	for (int64_t i = 0; i < taken; i++) {
		struct candidate c = heap[n - 1 - i];
		sum += (double)ig_expf((c.logit - top) * inv);
		if (sum > want)
			return c.id;
	}
	return heap[n - taken].id;
}
