/*
 * open_files.h: what a folder's tokenizer must hold whatever its files are; for the fuzz
 * targets of its readers.
 */
#pragma once

#include "model/chat/chat_template.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/config_private.h"
#include "base/utf8.h"
#include "tiny_files.h"

static inline void open_files(struct tiny_folder *f, bool chat)
{
	static const char text[] = " hello  <s> \xc3\xa9"
				   "e\xcc\x81\xff ABC<tool>\n123\xe4\xb8\xad";
	struct ig_model_files files = tiny_model_files(f);
	struct ig_error err = { 0 };
	struct ig_chat_template *c;
	struct ig_tokenizer *t;
	struct ig_detokenizer d;
	struct ig_ids l = { 0 };
	int rc = ig_tokenizer_open_files(&files, false, &t, &err);

	if (rc) {
		if (rc != -ENOMEM && rc != -ENOENT && !err.text[0])
			abort(); /* people are told why */
		return;
	}
	for (int special = 0; special < 2; special++)
		if (ig_tokenizer_encode(t, text, sizeof text - 1, special, 1000, &l) == 0)
			for (size_t i = 0; i < l.n && !special; i++)
				if (l.ids[i] < 0 || l.ids[i] >= ig_tokenizer_n_vocab(t))
					abort();
	char *buf = malloc(ig_detokenizer_max(t));
	if (!buf)
		abort();
	ig_detokenizer_init(&d, t);
	for (size_t i = 0; i <= l.n; i++) {
		size_t n = i < l.n ? ig_detokenizer_put(&d, l.ids[i], buf) :
				     ig_detokenizer_flush(&d, buf);
		int used;
		for (size_t k = 0; k < n; k += (size_t)used) {
			used = ig_utf8_check((const unsigned char *)buf + k, n - k);
			if (used <= 0)
				abort();
		}
	}
	free(buf);
	ig_ids_finish(&l);
	if (chat && !ig_chat_template_open_files(&files, t, &c, &err))
		ig_chat_template_close(c);
	ig_tokenizer_close(t);
}
