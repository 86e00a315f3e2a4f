/*
 * sim_files.h: files of computed blocks in memory, in the place of store/kv_files.c, without a thread: a test
 * says when blocks are read and written, and what fails.
 */
#pragma once

#include <stdbool.h>

/* No files; most_waiting: blocks that may wait to be written. */
void sim_files_reset(unsigned most_waiting);
/* Read and write up to n blocks, of which so many percent fail; draw(n): a number below n.  Returns how many. */
unsigned sim_files_work(unsigned n, unsigned failing, unsigned (*draw)(unsigned n));
/* From now on any number may wait to be written. */
void sim_files_take_all(void);
/* Lose up to n files. */
void sim_files_lose(unsigned n, unsigned (*draw)(unsigned n));
