/* apply_patch.h: the grammar that Codex sends with its tool apply_patch. */
#pragma once

#define APPLY_PATCH                                                                                \
	"start: begin_patch hunk+ end_patch\n"                                                     \
	"begin_patch: \"*** Begin Patch\" LF\n"                                                    \
	"end_patch: \"*** End Patch\" LF?\n"                                                       \
	"\n"                                                                                       \
	"hunk: add_hunk | delete_hunk | update_hunk\n"                                             \
	"add_hunk: \"*** Add File: \" filename LF add_line+\n"                                     \
	"delete_hunk: \"*** Delete File: \" filename LF\n"                                         \
	"update_hunk: \"*** Update File: \" filename LF change_move? change?\n"                    \
	"\n"                                                                                       \
	"filename: /(.+)/\n"                                                                       \
	"add_line: \"+\" /(.*)/ LF -> line\n"                                                      \
	"\n"                                                                                       \
	"change_move: \"*** Move to: \" filename LF\n"                                             \
	"change: (change_context | change_line)+ eof_line?\n"                                      \
	"change_context: (\"@@\" | \"@@ \" /(.+)/) LF\n"                                           \
	"change_line: (\"+\" | \"-\" | \" \") /(.*)/ LF\n"                                         \
	"eof_line: \"*** End of File\" LF\n"                                                       \
	"\n"                                                                                       \
	"%import common.LF\n"
