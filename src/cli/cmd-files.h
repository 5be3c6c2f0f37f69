/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_CMD_FILES_H
#define CLI_CMD_FILES_H

#include "cay/files.h"
#include "cli/options.h"
#include "cli/output.h"

call_runner cmd_files_resolve, cmd_files_explain, cmd_files_roots, cmd_files_stat,
    cmd_files_exists, cmd_files_read, cmd_files_list, cmd_files_glob, cmd_files_grep;
call_runner cmd_files_write, cmd_files_append, cmd_files_edit, cmd_files_delete,
    cmd_files_move, cmd_files_copy, cmd_files_mkdir, cmd_files_export, cmd_files_import;

#endif
