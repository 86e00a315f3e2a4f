/* fuzz_markdown.c: what a model may write, on terminals of any width.  The first byte is the width,
 * the second how many of the next are sizes of the pieces in which the text comes. */
#include <stdint.h>

#include "on_terminal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	size_t n = data[1] % 16;
	n = n < size - 2 ? n : size - 2;
	check_on_terminal((const char *)data + 2 + n, size - 2 - n, data[0], data + 2, n);
	return 0;
}
