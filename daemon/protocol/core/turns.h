/* turns.h: a conversation in the form that its model's chat template has a place for. */
#pragma once

#include "base/json.h"
#include "model/chat/chat_template.h"

/*
 * Replace *list by a list in which
 *   - a system message that the template has no place for is text of the turn of the user before
 *     it, or else of the one after it, or a turn of the user of its own.  It is not moved to the
 *     front, where it would change the prompt's beginning, which the cache has;
 *   - several turns of the user in a row are one, where the template has no place for them.
 * Messages in *list are not changed: others may hold them.  0 or -1, out of memory, and *list is
 * as it was.
 */
int ig_turns_fit(json_t **list, const struct ig_chat_turns *t);
