/* common.h: small helpers that several folders of model/ use. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Unicode's White_Space; no such character has more than three bytes. */
static inline bool ig_is_white_space(uint32_t c)
{
	return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
	       (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
	       c == 0x205f || c == 0x3000;
}
