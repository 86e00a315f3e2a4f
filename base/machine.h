/* machine.h: how much of this machine the process may use. */
#pragma once

#include <stdint.h>

/* Processors, at least 1.  On Linux those of the affinity mask, or as many as the control group's
 * quota is worth, where those are fewer; elsewhere all that are online. */
unsigned ig_machine_cpus(void);

/* Bytes of memory: what there is, or on Linux the control group's limit where that is less; 0
 * where the system does not say. */
uint64_t ig_machine_memory(void);

/* The same limits alone, of the control group (version 2) that the file `groups` names, in the
 * form of /proc/self/cgroup, and of all groups above it, the least counts; 0 where there is none.
 * Groups are folders below `mount`.  A quota is rounded down, so that threads which wait for each
 * other are never held up by it, but at least 1. */
unsigned ig_group_cpus(const char *groups, const char *mount);
uint64_t ig_group_memory(const char *groups, const char *mount);
