/*
 * command.h: the commands of ingot.  Each reads its own arguments (argv[0] is the
 * first after the command's name) and returns the process's exit status: 0, 1 for
 * a failure, 2 for wrong usage, 130 after Ctrl-C.
 */
#pragma once

enum { IG_EXIT_OK = 0, IG_EXIT_FAILED = 1, IG_EXIT_USAGE = 2, IG_EXIT_INTERRUPTED = 130 };

int ig_run_main(int argc, char **argv);
int ig_chat_main(int argc, char **argv);
int ig_pull_main(int argc, char **argv);
int ig_convert_main(int argc, char **argv);
int ig_ps_main(int argc, char **argv);
int ig_models_main(int argc, char **argv);
int ig_stats_main(int argc, char **argv);
int ig_cache_main(int argc, char **argv);
int ig_backup_main(int argc, char **argv);
int ig_doctor_main(int argc, char **argv);
int ig_keys_main(int argc, char **argv);
int ig_top_main(int argc, char **argv);
int ig_bench_main(int argc, char **argv);
int ig_launch_main(int argc, char **argv);
