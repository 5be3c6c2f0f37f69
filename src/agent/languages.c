/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/languages.h"

#include <strings.h>

#include "cay/agent.h"

/* A file in a directory of its own would be looked at for modules there; the code wants
 * those of the working directory, as if its file were in it.  So a line of Python puts
 * itself where a script would be, and keeps out of tracebacks. */
static const char run_python[] =
    "import sys;sys.argv[:]=sys.argv[1:];__file__=sys.argv[0];"
    "sys.excepthook=lambda t,e,b,h=sys.__excepthook__:"
    "h(t,e.with_traceback(b and b.tb_next),b and b.tb_next);del sys;"
    "exec(compile(open(__file__,'rb').read(),__file__,'exec'))";

static const struct language languages[] = {
    {.name = "python",
     .aliases = {"py", "python3"},
     .way = LANGUAGE_FILE,
     .file = "main.py",
     .programs = {"python3", "python"},
     .arguments = {"-c", run_python},
     .is_python = true},
    /* From its input it looks for modules in the working directory. */
    {.name = "javascript",
     .aliases = {"js", "node", "nodejs"},
     .way = LANGUAGE_INPUT,
     .programs = {"node", "nodejs"},
     .arguments = {"-"}},
    {.name = "bash", .way = LANGUAGE_FILE, .file = "main.sh", .programs = {"bash"}},
    {.name = "sh",
     .aliases = {"shell"},
     .way = LANGUAGE_FILE,
     .file = "main.sh",
     .programs = {"sh"}},
    {.name = "perl",
     .aliases = {"pl"},
     .way = LANGUAGE_FILE,
     .file = "main.pl",
     .programs = {"perl"}},
    {.name = "ruby",
     .aliases = {"rb"},
     .way = LANGUAGE_FILE,
     .file = "main.rb",
     .programs = {"ruby"}},
    {.name = "php", .way = LANGUAGE_FILE, .file = "main.php", .programs = {"php"}},
    {.name = "lua",
     .way = LANGUAGE_FILE,
     .file = "main.lua",
     .programs = {"lua", "lua5.4", "lua5.3"}},
    {.name = "r",
     .aliases = {"rscript"},
     .way = LANGUAGE_FILE,
     .file = "main.R",
     .programs = {"Rscript"}},
};

enum { COUNT = sizeof languages / sizeof *languages };

const struct language *language_at(size_t index)
{
    return index < COUNT ? &languages[index] : NULL;
}

const char *cay_code_language(size_t index)
{
    return index < COUNT ? languages[index].name : NULL;
}

static bool is_called(const struct language *language, const char *name)
{
    if (strcasecmp(language->name, name) == 0)
        return true;
    for (size_t i = 0; i < 4 && language->aliases[i]; i++)
        if (strcasecmp(language->aliases[i], name) == 0)
            return true;
    return false;
}

const struct language *language_find(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (is_called(&languages[i], name))
            return &languages[i];
    return NULL;
}
