/* log.h: log messages on standard error, one line each, with time and level.  Any thread.  The text
 * is for people; no program parses it. */
#pragma once

#include <ingot/module.h>

__attribute__((format(printf, 2, 3))) void ig_log(int level, const char *fmt, ...);

#define ig_log_error(...) ig_log(IG_LOG_ERROR, __VA_ARGS__)
#define ig_log_warn(...) ig_log(IG_LOG_WARN, __VA_ARGS__)
#define ig_log_info(...) ig_log(IG_LOG_INFO, __VA_ARGS__)
#define ig_log_debug(...) ig_log(IG_LOG_DEBUG, __VA_ARGS__)

/* Messages above this level are dropped; the default is IG_LOG_INFO. */
void ig_log_set_level(int level);

/* Append to the file at path instead of standard error; NULL: standard error again.  A further call
 * (on SIGHUP) opens the file again.  0 or -errno. */
int ig_log_set_file(const char *path);
