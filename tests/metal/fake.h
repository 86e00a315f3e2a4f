/*
 * fake.h: the double of Metal, as tests steer it.
 *
 * The double implements the declarations of apple/Metal/Metal.h over the software device
 * (soft/soft.h).  Command buffers run on a thread of their own.  A breach of what Apple's
 * layer asks for is a report: a line of text.  A program that does not collect reports
 * ends with the first one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct fake_machine {
	bool no_default; /* nobody is logged in: the default device is nil */
	bool no_devices;
	uint32_t family;	  /* 7: Apple7; 10: Apple10, which is Metal4 too from macOS 26 on */
	const char *architecture; /* "applegpu_g13g" */
	uint32_t macos;		  /* 14, 15, 26 */
	uint64_t max_buffer_bytes;
	uint64_t working_set_bytes;
	uint32_t max_threads; /* of a pipeline, at most */
	bool collect;	      /* reports are kept for fake_take_report */

	/* Failures; counts go down, and what makes one 0 fails.  0: none. */
	uint32_t fail_buffer;	/* newBuffer… */
	uint32_t fail_set;	/* newResidencySet… */
	uint32_t fail_object;	/* newSharedEvent, newFence, newCommandQueue… */
	uint32_t fail_encoder;	/* computeCommandEncoder… */
	uint32_t fail_commands; /* a command buffer, with error_code and error_text */
	uint32_t hang_commands; /* a command buffer: it ends when fake_end_hang is called */
	int32_t error_code;
	const char *error_text;
	const char *fail_library;  /* part of the source */
	const char *fail_pipeline; /* a kernel's name */
	bool refuse_metallib;
	const char *
		wrong_kernel; /* a kernel's name: of the first value of its last buffer, this bit is another one */
	uint32_t wrong_bit;
	uint32_t lag_us;	  /* between a command buffer's signals and its state */
	uint64_t allocated_bytes; /* added to what the device says is allocated */
};

extern struct fake_machine fake_machine;

/* All as on a MacBook with an M1 and macOS 15, nothing fails, no reports. */
void fake_reset(void);
/* An M5 with macOS 26. */
void fake_play_m5(void);
/* The first report that was not taken yet, or NULL; valid until the next call. */
const char *fake_take_report(void);
/* Command buffers wait before they run, until fake_let_go(). */
void fake_hold(void);
void fake_let_go(void);
void fake_end_hang(void);
/* Wait until nothing is under way. */
void fake_settle(void);
/* The system says that memory is short: DISPATCH_MEMORYPRESSURE_… */
void fake_memory_pressure(unsigned long events);

/* What the driver did, since fake_reset. */
struct fake_counts {
	uint32_t devices, queues, buffers, libraries, functions, pipelines, events, fences, sets;
	uint32_t command_buffers, encoders; /* that live now, as all above */
	uint32_t committed, dispatches, barriers, binds, requests;
	uint32_t wired; /* residency sets whose residency was requested and not ended */
	uint32_t from_source, from_data;
	/* Of the last library made from source: */
	uint32_t language;
	int32_t math_mode, math_functions, fast_math; /* -1: not set */
};

struct fake_counts fake_count(void);
