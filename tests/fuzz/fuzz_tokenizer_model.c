/*
 * fuzz_tokenizer_model.c: any bytes as a folder's tokenizer.model, with the table of
 * replacements that they may have in them; see open_files.h.
 */
#include "open_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tiny_folder f = { 0 };

	tiny_put(&f, "tokenizer.model", (const char *)data, size);
	open_files(&f, false);
	return 0;
}
