/* machine.h: how much of this machine the process may use. */
#pragma once

#include <stdint.h>

/* Processors, at least 1.  On Linux the smaller of the affinity mask's number and the control
 * group's quota; elsewhere all that are online. */
unsigned ig_machine_cpus(void);

/* Bytes of memory: the machine's, or on Linux the control group's limit if it is smaller; 0 if
 * unknown. */
uint64_t ig_machine_memory(void);

/* Bytes of memory that the system counts for this process: on macOS the footprint, by which it
 * chooses what to end (clean pages of files are not in it), elsewhere what is resident; 0 if
 * unknown. */
uint64_t ig_process_memory(void);

/* The control groups' limits alone; 0: none.  The file `groups`, in the format of
 * /proc/self/cgroup, names a group (version 2), which is a folder in `mount`; the least limit of it
 * and of all groups above it counts.  A quota is rounded down, but at least 1, so that it does not
 * delay threads which wait for each other. */
unsigned ig_group_cpus(const char *groups, const char *mount);
uint64_t ig_group_memory(const char *groups, const char *mount);
