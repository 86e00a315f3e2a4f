/* build_id.h: which declarations of tier 2 of the module ABI this was built from. */
#pragma once

extern const char ig_build_id[];
