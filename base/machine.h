/* machine.h: how much of this machine the process may use. */
#pragma once

#include <stdbool.h>
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
/* On macOS the same, elsewhere 0: no system but that one counts by process what the GPU uses, too, and nothing of
 * mapped files. */
uint64_t ig_process_footprint(void);

/* The default of memory.budget.  device: bytes that the driver's device should use at most, 0 if it
 * computes in the host's memory; unified: the device's memory is the host's. */
uint64_t ig_default_budget(uint64_t machine, uint64_t device, bool unified);
/* Of unified memory that `device` is the limit of: what the default budget leaves for pipelines,
 * command buffers and other programs' windows. */
uint64_t ig_unified_reserve(uint64_t device);
/* macOS: the sysctl iogpu.wired_limit_mb, which recommendedMaxWorkingSetSize follows; 0: the
 * system's own limit, negative: this system has no such setting. */
int64_t ig_gpu_wired_limit_mb(void);

/* The control groups' limits alone; 0: none.  The file `groups`, in the format of
 * /proc/self/cgroup, names a group (version 2), which is a folder in `mount`; the least limit of it
 * and of all groups above it counts.  A quota is rounded down, but at least 1, so that it does not
 * delay threads which wait for each other. */
unsigned ig_group_cpus(const char *groups, const char *mount);
uint64_t ig_group_memory(const char *groups, const char *mount);
