/* convert.c: `ingot convert IN OUT`: writes a model as GGUF, with another element type, and prints
 * sizes and quantisation errors, by kind of tensor or for each tensor. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/nearest.h"
#include "base/utf8.h"
#include "cli/commands/command.h"
#include "cli/download/files.h"
#include "cli/options.h"
#include "cli/term/progress.h"
#include "cli/term/text.h"
#include "model/quantize/convert.h"
#include "runtime/modules/modules.h"
#include "store/config.h"

struct convert {
	const char *type, *imatrix;
	int64_t n_threads;
	bool force, tensors, types, json;
};

/* ---- the report ----------------------------------------------------------------- */

static double rmse(const struct ig_converted *c) { return sqrt(c->errors / (double)c->n_values); }

static double relative(const struct ig_converted *c)
{
	return c->squares > 0 ? sqrt(c->errors / c->squares) : 0;
}

static void add_up(struct ig_converted *sum, const struct ig_converted *c)
{
	sum->bytes_before += c->bytes_before;
	sum->bytes_after += c->bytes_after;
	sum->n_values += c->n_values;
	sum->squares += c->squares;
	sum->errors += c->errors;
	sum->worst = c->worst > sum->worst ? c->worst : sum->worst;
}

static struct ig_converted all_of(const struct ig_convert_report *r)
{
	struct ig_converted sum = { 0 };

	for (size_t i = 0; i < r->n_tensors; i++)
		add_up(&sum, &r->tensors[i]);
	return sum;
}

/* "attn_q.weight" of "blk.3.attn_q.weight". */
static const char *kind_of(const char *name)
{
	size_t digits;

	if (strncmp(name, "blk.", 4))
		return name;
	digits = strspn(name + 4, "0123456789");
	return digits && name[4 + digits] == '.' ? name + 4 + digits + 1 : name;
}

static void add_types(struct ig_table *t, const struct ig_converted *c)
{
	ig_table_add(t, ig_dtype_name(c->from));
	ig_table_add(t, ig_dtype_name(c->to));
}

static void add_numbers(struct ig_table *t, const struct ig_converted *c)
{
	char before[32], after[32];

	ig_table_add(t, ig_text_bytes(before, sizeof before, c->bytes_before));
	ig_table_add(t, ig_text_bytes(after, sizeof after, c->bytes_after));
	if (c->errors > 0) {
		ig_table_addf(t, "%.3g", rmse(c));
		ig_table_addf(t, "%.3f %%", 100 * relative(c));
	} else {
		ig_table_add(t, "0");
		ig_table_add(t, "exact");
	}
}

static int print_table(const struct convert *o, const struct ig_convert_report *r)
{
	static const char *const headers[] = { "TENSOR",  ">N",	    "FROM",  "TO",
					       ">BEFORE", ">AFTER", ">RMSE", ">ERROR" };
	struct ig_converted sum;
	struct ig_table t;
	bool *listed = calloc(r->n_tensors, sizeof *listed);
	int rc;

	if (!listed)
		return -ENOMEM;
	ig_table_init(&t, headers, sizeof headers / sizeof *headers);
	for (size_t i = 0; i < r->n_tensors; i++) {
		const struct ig_converted *c = &r->tensors[i];
		const char *kind = o->tensors ? c->name : kind_of(c->name);
		size_t n = 1;

		if (listed[i])
			continue;
		sum = (struct ig_converted){ 0 };
		add_up(&sum, c);
		for (size_t j = i + 1; j < r->n_tensors && !o->tensors; j++) {
			const struct ig_converted *other = &r->tensors[j];
			if (listed[j] || other->from != c->from || other->to != c->to ||
			    strcmp(kind_of(other->name), kind))
				continue;
			listed[j] = true;
			n++;
			add_up(&sum, other);
		}
		ig_table_add(&t, kind);
		ig_table_addf(&t, "%zu", n);
		add_types(&t, c);
		add_numbers(&t, &sum);
	}
	sum = all_of(r);
	ig_table_add(&t, "all");
	ig_table_addf(&t, "%zu", r->n_tensors);
	ig_table_add(&t, "");
	ig_table_add(&t, "");
	add_numbers(&t, &sum);
	rc = ig_table_print(&t);
	ig_table_finish(&t);
	free(listed);
	return rc;
}

static int print_text(const struct convert *o, const struct ig_mix *mix, const char *path,
		      const struct ig_convert_report *r)
{
	struct ig_converted sum = all_of(r);
	struct ig_strbuf shown = { 0 };
	char size[32], time[32];
	int rc = print_table(o, r);

	if (rc)
		return rc;
	ig_text_plain(&shown, path, strlen(path), false);
	printf("\n%s: %s, %s, %.2f bits a weight, written in %s\n", ig_strbuf_text(&shown),
	       mix->name, ig_text_bytes(size, sizeof size, r->file_bytes),
	       8.0 * (double)sum.bytes_after / (double)sum.n_values,
	       ig_text_seconds(time, sizeof time, r->seconds));
	ig_strbuf_finish(&shown);
	return 0;
}

/* Any bytes as a JSON string; of a text that is not UTF-8, bytes above 127 become '?'. */
static json_t *json_text(const char *s)
{
	char *copy;
	json_t *j;

	if (ig_utf8_valid(s, strlen(s)))
		return json_string(s);
	copy = strdup(s);
	for (char *p = copy; p && *p; p++)
		if (*p & 0x80)
			*p = '?';
	j = copy ? json_string(copy) : NULL;
	free(copy);
	return j;
}

static json_t *json_of(const struct ig_converted *c)
{
	return json_pack("{s:I, s:I, s:f, s:f, s:f}", "bytes_before", (json_int_t)c->bytes_before,
			 "bytes_after", (json_int_t)c->bytes_after, "rmse", rmse(c),
			 "relative_error", relative(c), "largest_error", (double)c->worst);
}

static int print_json(const struct ig_mix *mix, const char *path, const struct ig_convert_report *r)
{
	struct ig_converted sum = all_of(r);
	json_t *root = json_of(&sum), *list = json_array();
	int rc = json_object_set_new(root, "tensors", list);

	for (size_t i = 0; i < r->n_tensors; i++) {
		const struct ig_converted *c = &r->tensors[i];
		json_t *j = json_of(c);
		rc |= json_array_append_new(list, j);
		rc |= json_object_set_new(j, "name", json_text(c->name));
		rc |= json_object_set_new(j, "from", json_string(ig_dtype_name(c->from)));
		rc |= json_object_set_new(j, "to", json_string(ig_dtype_name(c->to)));
		rc |= json_object_set_new(j, "weighted", json_boolean(c->weighted));
	}
	rc |= json_object_set_new(root, "path", json_text(path));
	rc |= json_object_set_new(root, "type", json_string(mix->name));
	rc |= json_object_set_new(root, "file_bytes", json_integer((json_int_t)r->file_bytes));
	rc |= json_object_set_new(root, "bits_per_weight",
				  json_real(8.0 * (double)sum.bytes_after / (double)sum.n_values));
	rc |= json_object_set_new(root, "seconds", json_real(r->seconds));
	rc = rc ? -ENOMEM : ig_json_print(root, 9);
	json_decref(root);
	return rc;
}

/* ---- the command ----------------------------------------------------------------------- */

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
	struct ig_progress *p = ctx;

	if (!p->on)
		ig_progress_start(p, total, 0);
	ig_progress_update(p, done);
}

static size_t n_weighted(const struct ig_convert_report *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_tensors; i++)
		n += r->tensors[i].weighted;
	return n;
}

static bool is_quantised(const struct ig_convert_report *r)
{
	for (size_t i = 0; i < r->n_tensors; i++) {
		const struct ig_converted *c = &r->tensors[i];
		if (c->from != c->to && c->from != IG_F32 && c->from != IG_F16 &&
		    c->from != IG_BF16 && c->to != IG_F32)
			return true;
	}
	return false;
}

/* Open the model; a folder needs the architectures of the modules that a daemon would load here,
 * which the caller destroys.  A refused module is logged. */
static int open_source(const char *from, struct ig_modules **modules, struct ig_checkpoint **out,
		       struct ig_error *err)
{
	struct ig_config *c = NULL;
	int rc;

	if (!ig_checkpoint_is_folder(from))
		return ig_checkpoint_open(from, NULL, out, err);
	rc = ig_config_load_or_defaults(NULL, &c, err);
	if (!rc)
		rc = ig_modules_create(modules, err);
	if (!rc) {
		ig_modules_load_folders(*modules, c->modules.path, NULL);
		rc = ig_modules_start(*modules, NULL, 0, err);
	}
	if (!rc)
		rc = ig_checkpoint_open(from, ig_modules_archs(*modules), out, err);
	ig_config_destroy(c);
	return rc;
}

static int convert(const struct convert *o, const struct ig_mix *mix, const char *from,
		   const char *to)
{
	struct ig_modules *modules = NULL;
	struct ig_convert_report report = { 0 };
	struct ig_progress progress = { 0 };
	struct ig_imatrix *imatrix = NULL;
	struct ig_checkpoint *in = NULL;
	struct ig_error err = { 0 };
	struct ig_convert_options options = {
		.mix = mix,
		.replace = o->force,
		.n_threads = (uint32_t)o->n_threads,
		.stop = &ig_interrupted,
		.progress = isatty(STDERR_FILENO) ? on_progress : NULL,
		.ctx = &progress,
	};
	int status = IG_EXIT_FAILED, rc;

	if ((o->imatrix && ig_imatrix_open(o->imatrix, &imatrix, &err)) ||
	    open_source(from, &modules, &in, &err)) {
		ig_complain("%s", err.text);
		goto out;
	}
	options.imatrix = imatrix;
	rc = ig_convert(in, to, &options, &report, &err);
	ig_progress_stop(&progress);
	if (rc == -EINTR || (rc && ig_interrupted)) {
		fputs("interrupted; no file is left\n", stderr);
		status = IG_EXIT_INTERRUPTED;
	} else if (rc) {
		ig_complain("%s%s", err.text, rc == -EEXIST ? "; --force overwrites it" : "");
	} else {
		if (is_quantised(&report))
			fputs("the source is quantised: the errors are relative to its values\n",
			      stderr);
		if (imatrix)
			fprintf(stderr,
				"the importance matrix weighted the errors of %zu of %zu tensors\n",
				n_weighted(&report), report.n_tensors);
		if (report.no_tokenizer)
			fputs("the source has no tokenizer, so the file cannot be served\n",
			      stderr);
		rc = o->json ? print_json(mix, to, &report) : print_text(o, mix, to, &report);
		if (rc)
			ig_complain(
				"convert: the file is written, but the report cannot be printed");
		else
			status = IG_EXIT_OK;
	}
	ig_convert_report_finish(&report);
out:
	ig_checkpoint_close(in);
	ig_imatrix_close(imatrix);
	ig_modules_destroy(modules);
	return status;
}

int ig_convert_main(int argc, char **argv)
{
	struct convert o = { .type = "Q4_K_M" };
	const struct ig_option opts[] = {
		IG_TEXT("type", 't', &o.type, "TYPE",
			"element type of the matrices (default Q4_K_M)"),
		IG_TEXT("imatrix", 0, &o.imatrix, "FILE",
			"weight errors by this importance matrix (of llama.cpp)"),
		IG_FLAG("types", 0, &o.types, "list the types, one a line"),
		IG_FLAG("force", 'f', &o.force, "overwrite an existing file"),
		{ "threads", 0, IG_OPT_INT, &o.n_threads, NULL, "N",
		  "number of threads (default: one a processor)", 1, 256 },
		IG_FLAG("tensors", 0, &o.tensors,
			"print a line for each tensor, not for each kind"),
		IG_FLAG("json", 0, &o.json, "print one JSON object with every tensor"),
		{ 0 },
	};
	const struct ig_mix *mix;
	char hint[96];
	int n_args,
		status = ig_command_start(
			"convert IN OUT [options]",
			"Write the model IN, a GGUF file or a folder with safetensors, to the GGUF "
			"file OUT,\nits matrices with another element type; print sizes and errors.",
			opts, argc, argv, &n_args);

	if (status >= 0)
		return status;
	if (o.types) {
		for (mix = ig_mixes(); mix->name; mix++)
			puts(mix->name);
		return IG_EXIT_OK;
	}
	if (n_args != 2)
		return ig_wrong_usage("convert", "expected %s",
				      n_args > 2 ? "two files" :
				      n_args	 ? "a file to write to" :
						   "a model, and a file to write to");
	mix = ig_mix_find(o.type);
	if (!mix) {
		ig_complain(
			"convert: --type: there is no '%s'%s; `ingot convert --types` lists them",
			o.type, ig_did_you_mean(hint, o.type, "", ig_mixes(), sizeof *mix));
		return IG_EXIT_USAGE;
	}
	ig_catch_interrupts();
	/* writing past a file size limit returns an error instead of ending the process */
	signal(SIGXFSZ, SIG_IGN);
	return convert(&o, mix, argv[0], argv[1]);
}
