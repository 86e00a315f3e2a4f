/* build_id.h: the id of the module ABI's tier 2 declarations that this program was built from. */
#pragma once

extern const char ig_build_id[];
