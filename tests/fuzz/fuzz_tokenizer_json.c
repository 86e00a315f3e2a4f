/*
 * fuzz_tokenizer_json.c: any bytes as a folder's tokenizer.json or, by the first byte, as
 * its tekken.json or as the tokenizer_config.json beside a good one.  What opens must
 * encode a text to ids of its vocabulary and give UTF-8 back; a chat template is compiled.
 */
#include "open_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ig_strbuf good;
	struct tiny_folder f = { 0 };

	if (!good.len)
		tiny_json(&good, &(struct tiny_json){ .kind = TINY_PAIRS });
	if (size == 0)
		return 0;
	const char *rest = (const char *)data + 1;
	switch (data[0]) {
	case 'c':
		tiny_put(&f, "tokenizer.json", good.data, good.len);
		tiny_put(&f, "tokenizer_config.json", rest, size - 1);
		open_files(&f, true);
		break;
	case 't':
		tiny_put(&f, "tekken.json", rest, size - 1);
		open_files(&f, false);
		break;
	default: tiny_put(&f, "tokenizer.json", (const char *)data, size); open_files(&f, false);
	}
	return 0;
}
