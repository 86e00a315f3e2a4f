/* fake_metrics.c: the ledger and the metrics of the engine's tests: see fake_runtime.h. */
#include "fake_runtime.h"

#include <stdio.h>
#include <string.h>

bool ig_ledger_failure(struct ig_ledger *l, char *buf, size_t size)
{
	snprintf(buf, size, "%s", "");
	return false;
}

void ig_ledger_put(struct ig_ledger *l, const struct ig_ledger_row *row)
{
	pthread_mutex_lock(&fake.lock);
	if (fake.n_rows < FAKE_MAX_ROWS)
		fake.rows[fake.n_rows++] = *row;
	pthread_cond_broadcast(&fake.changed);
	pthread_mutex_unlock(&fake.lock);
}

void ig_metrics_set_ranks(struct ig_metrics *m, const struct ig_rank_bytes *ranks, uint32_t n)
{
	pthread_mutex_lock(&fake.lock);
	for (uint32_t r = 0; r < n && r < FAKE_RANKS; r++)
		fake.ranks[r] = ranks[r];
	fake.n_rank_gauges = n;
	pthread_mutex_unlock(&fake.lock);
}

uint32_t ig_metrics_ranks(const struct ig_metrics *m, struct ig_rank_bytes ranks[IG_METRICS_RANKS])
{
	pthread_mutex_lock(&fake.lock);
	const uint32_t n = fake.n_rank_gauges < FAKE_RANKS ? fake.n_rank_gauges : FAKE_RANKS;
	memcpy(ranks, fake.ranks, n * sizeof *ranks);
	pthread_mutex_unlock(&fake.lock);
	return n;
}

int ig_itl_bucket(double ms) { return ms < 1 ? 0 : ms < 10 ? 1 : 2; }

void ig_metrics_request(struct ig_metrics *m, const struct ig_ledger_row *row)
{
	atomic_fetch_add(&fake.n_requests, 1);
}

void ig_metrics_inter_token(struct ig_metrics *m, double seconds)
{
	atomic_fetch_add(&fake.n_itl, 1);
}

void ig_metrics_step(struct ig_metrics *m, uint32_t n_prefill, uint32_t n_decode, double seconds)
{
	atomic_fetch_add(&fake.n_step_metrics, 1);
	atomic_fetch_add(&fake.n_prefill_rows, (int)n_prefill);
	if (n_prefill) {
		int none = -1;
		atomic_compare_exchange_strong(&fake.n_decode_before, &none, fake.n_decode_rows);
		fake.n_decode_until = fake.n_decode_rows;
	}
	atomic_fetch_add(&fake.n_decode_rows, (int)n_decode);
}

void ig_metrics_model_load(struct ig_metrics *m, double seconds)
{
	atomic_fetch_add(&fake.n_loads, 1);
}

void ig_metrics_set(struct ig_metrics *m, enum ig_gauge g, double v)
{
	atomic_store(&fake.gauges[g], v);
}

void ig_metrics_add(struct ig_metrics *m, enum ig_counter c, uint64_t n)
{
	atomic_fetch_add(&fake.counters[c], (int)n);
}
