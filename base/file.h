/* file.h: whole files, and the folders that they are in. */
#pragma once

#include "base/strbuf.h"

#include <ingot/error.h>
#include <signal.h>
#include <stdint.h>

/* Append the rest of fd; out->data then ends with a NUL.  0, -EFBIG: there are more than max
 * bytes, -ENOMEM, -EINTR: a signal came and *stop is set (stop may be NULL), or -errno. */
int ig_read_all(int fd, size_t max, const volatile sig_atomic_t *stop, struct ig_strbuf *out);
/* The same of a regular file, with text. */
int ig_read_file(const char *path, size_t max, struct ig_strbuf *out, struct ig_error *err);

/* Read len bytes at an offset; 0, -EBADMSG: the file ends before, or -errno. */
int ig_read_at(int fd, void *to, uint64_t len, uint64_t at);
/* 0 or -errno. */
int ig_write_all(int fd, const void *data, size_t len);
/* Write a new file of mode 600, fsync it, rename it to path, fsync the folder: the file at path is
 * the old one or whole.  0, or -errno with text. */
int ig_replace_file(const char *path, const void *data, size_t len, struct ig_error *err);
/* fsync of the folder that holds path; 0 or -errno. */
int ig_sync_folder_of(const char *path);

/* Make the folders above a file, each with this mode; those that exist stay as they are. */
int ig_make_folders_above(const char *file, unsigned mode, struct ig_error *err);

/* Open a folder in which files are to be made; it is made for its owner alone if it is missing.  The
 * descriptor, or -errno with text, in which `what` names the option. */
int ig_open_folder(const char *path, const char *what, struct ig_error *err);

struct stat;
/* When a file was last written, of ig_wall_ns. */
int64_t ig_mtime_ns(const struct stat *st);

/* The file of the running program, without links. */
bool ig_program_path(char *buf, size_t size);
/* The folder of the running program, without links and without a slash at its end. */
bool ig_program_folder(char *buf, size_t size);
