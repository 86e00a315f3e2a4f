/* models_status.c: the models as the daemon shows them: to operators, to clients and in metrics. */
#include "daemon/engine/models_private.h"

#include "base/clock.h"
#include "daemon/engine/contract_private.h"

#include <string.h>

static enum ig_model_state state_of(const struct ig_models *ms, const struct ig_model_entry *s)
{
	const struct ig_model *m;

	if (s->model)
		return IG_MODEL_READY;
	if (s->load != IG_LOAD_NONE && !s->look_only)
		return IG_MODEL_LOADING;
	if (s->error.code)
		return IG_MODEL_FAILED;
	TAILQ_FOREACH(m, &ms->all, all)
		if (m->entry == s)
			return IG_MODEL_UNLOADING;
	return IG_MODEL_UNLOADED;
}

/* As the loader decides, at this moment. */
static enum ig_model_fit fit_of(const struct ig_models *ms, const struct ig_model_entry *s)
{
	uint64_t wanted = s->need.weights + s->need.scratch,
		 free_now = ig_contract_free(&ms->contract);

	if (s->model || !s->n_context) /* its file was not opened */
		return s->model ? IG_FITS : IG_FIT_UNKNOWN;
	if (wanted <= free_now)
		return IG_FITS;
	return wanted <= free_now + ig_models_idle_bytes(ms, s) + ig_models_own_bytes(ms, s) ?
		       IG_FITS_INSTEAD :
		       IG_FITS_NOT;
}

static void fill_status(const struct ig_models *ms, const struct ig_model_entry *s,
			struct ig_model_status *out)
{
	const struct ig_model *m;
	int64_t now = ig_now_ns(), keep = ig_entry_keep_ns(s);

	*out = (struct ig_model_status){
		.state = state_of(ms, s),
		.is_default = s == ms->default_entry,
		.pinned = s->pin,
		.fit = fit_of(ms, s),
		.n_context = s->model ? s->model->limits.max_context : s->n_context,
		.weight_bytes = s->model ? s->model->need.weights : s->need.weights,
		.scratch_bytes = s->scratch_bytes,
		.n_loads = s->n_loads,
		.loaded_s = s->loaded_s,
		.expires_s = -1,
		.keep_alive_s = keep < 0 ? -1 : (double)keep * 1e-9,
		.on_device = ig_driver_memory(ms->backend->driver) > 0,
		.created_s = s->model ? s->model->shown.created_s : s->created_s,
		.traits = s->model ? s->model->shown.traits : s->traits,
	};
	snprintf(out->name, sizeof out->name, "%s", s->name);
	snprintf(out->arch, sizeof out->arch, "%s", s->model ? s->model->arch : s->arch);
	snprintf(out->file, sizeof out->file, "%s", s->model ? s->model->path : s->path);
	if (s->error.code)
		snprintf(out->error, sizeof out->error, "%.255s", s->error.text);
	TAILQ_FOREACH(m, &ms->all, all)
		if (m->entry == s)
			out->n_active += atomic_load(&m->n_active);
	for (uint32_t g = 0; s->model && g < s->model->n_groups; g++)
		out->block_bytes += s->model->layouts[g].block_bytes;
	if (!s->model || s->model->n_holds > 1)
		return;
	out->idle_s = (double)(now - s->model->idle_since_ns) * 1e-9;
	if (keep < 0)
		return;
	out->expires_s = out->keep_alive_s - out->idle_s;
	if (out->expires_s < 0)
		out->expires_s = 0;
}

/* Memory, files and requests are counted in the model's own row: a sum over rows has them once. */
static void show_as_adapter(const struct ig_model_entry *s, const struct ig_model_adapter *a,
			    struct ig_model_status *out)
{
	out->is_adapter = true;
	out->is_default = false;
	out->weight_bytes = out->scratch_bytes = out->block_bytes = out->traits.file_bytes = 0;
	out->n_active = out->n_loads = 0;
	snprintf(out->name, sizeof out->name, "%.*s:%s", IG_MAX_MODEL_NAME - 1, s->name, a->name);
	snprintf(out->file, sizeof out->file, "%s", a->path);
}

size_t ig_models_status(struct ig_models *ms, struct ig_model_status *out, size_t cap)
{
	const struct ig_model_entry *s;
	size_t n = 0;

	pthread_mutex_lock(&ms->lock);
	TAILQ_FOREACH(s, &ms->entries, link)
		for (uint32_t i = 0; i <= s->n_adapters; i++) {
			if (n++ >= cap)
				continue;
			fill_status(ms, s, &out[n - 1]);
			if (!i)
				continue;
			show_as_adapter(s, &s->adapters[i - 1], &out[n - 1]);
		}
	pthread_mutex_unlock(&ms->lock);
	return n;
}

void ig_models_describe(struct ig_models *ms, struct ig_json_writer *w)
{
	const struct ig_model_entry *s;

	pthread_mutex_lock(&ms->lock);
	TAILQ_FOREACH(s, &ms->entries, link) {
		const struct ig_chat_template *chat = s->model ? s->model->chat : NULL;
		struct ig_model_status st;
		fill_status(ms, s, &st);
		ig_json_putf(w,
			     "{'name': %s, 'arch': %s, 'file': %s, 'state': %s, 'error': %s, "
			     "'context': %u",
			     st.name, st.arch, st.file, ig_model_state_name(st.state),
			     st.error[0] ? st.error : NULL, st.n_context);
		ig_json_put_uint(w, "weight_bytes", st.weight_bytes);
		ig_json_put_uint(w, "scratch_bytes", st.scratch_bytes);
		ig_json_putf(w, "'chat_template': %s, 'chat_error': %s, 'default': %-s}",
			     chat ? ig_chat_template_name(chat) : NULL,
			     s->model ? s->model->chat_error : NULL, ig_json_bool(st.is_default));
	}
	pthread_mutex_unlock(&ms->lock);
}

void ig_models_sums(struct ig_models *ms, uint64_t out[4])
{
	const struct ig_contract *c = &ms->contract;

	pthread_mutex_lock(&ms->lock);
	out[0] = c->budget;
	out[1] = c->weights;
	out[2] = c->scratch + c->logits;
	out[3] = c->arena;
	pthread_mutex_unlock(&ms->lock);
}
