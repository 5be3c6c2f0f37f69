/* SPDX-License-Identifier: Apache-2.0 */
#include "diff/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/auto.h"
#include "base/hash.h"

/* --- Lines and their classes --- */

static int split(struct lines_text *side, size_t len)
{
    size_t room = 0;

    for (size_t at = 0;;) {
        if (side->count > LINES_MAX)
            return -E2BIG;
        if (!array_reserve(&side->starts, &room, side->count + 1, sizeof *side->starts))
            return -ENOMEM;
        side->starts[side->count] = (uint32_t)at;
        if (at == len)
            break;
        const char *end = memchr(side->text + at, '\n', len - at);
        at = end ? (size_t)(end + 1 - side->text) : len;
        side->count++;
    }
    side->changed = calloc(side->count + 1, sizeof *side->changed);
    return side->changed ? 0 : -ENOMEM;
}

static bool is_same(const struct lines_text *a, size_t i, const struct lines_text *b,
                    size_t j)
{
    size_t len = a->starts[i + 1] - a->starts[i];

    return len == b->starts[j + 1] - b->starts[j] &&
           memcmp(a->text + a->starts[i], b->text + b->starts[j], len) == 0;
}

/* The lines between those that both texts start and end with. */
struct middle {
    size_t from, to[2];
};

static struct middle trim(const struct lines *lines)
{
    const struct lines_text *old = &lines->sides[0], *new = &lines->sides[1];
    struct middle middle = {0, {old->count, new->count}};

    while (middle.from < old->count &&
           middle.from < new->count &&is_same(old, middle.from, new, middle.from))
        middle.from++;
    while (middle.to[0] > middle.from && middle.to[1] > middle.from &&
           is_same(old, middle.to[0] - 1, new, middle.to[1] - 1)) {
        middle.to[0]--;
        middle.to[1]--;
    }
    return middle;
}

struct class
{
    uint64_t hash;
    const char *line;
    uint32_t len;
    uint32_t number; /* from 1; 0: unused */
};

/* Equal lines of both texts have equal classes, from 1 on.  Finds the class of each of
 * these lines; returns how many there are so far. */
static uint32_t classify(const struct lines_text *side, size_t from, size_t to,
                         struct class *classes, size_t mask, uint32_t count,
                         uint32_t *ret_classes)
{
    for (size_t i = from; i < to; i++) {
        const char *line = side->text + side->starts[i];
        uint32_t len = side->starts[i + 1] - side->starts[i];
        uint64_t hash = hash_bytes(line, len);
        size_t at = hash & mask;
        while (classes[at].number &&
               (classes[at].hash != hash || classes[at].len != len ||
                memcmp(classes[at].line, line, len) != 0))
            at = (at + 1) & mask;
        if (!classes[at].number)
            classes[at] = (struct class){hash, line, len, ++count};
        ret_classes[i - from] = classes[at].number;
    }
    return count;
}

/* --- The shortest script ---
 *
 * A line that the other text does not have anywhere is changed for certain.  The search
 * is about the others: it walks a grid with a column for each line of the first text and
 * a row for each of the second, where common lines are diagonal steps that cost nothing.
 */

struct box {
    int64_t left, right, top, bottom;
};

struct search {
    struct lines *lines;
    uint32_t *classes[2]; /* of the lines that are searched... */
    uint32_t *numbers[2]; /* ...and which lines they are */
    int64_t counts[2];

    /* For each diagonal (column - row) the furthest column that a path from the upper
     * left reaches, and from the lower right. */
    int64_t *down, *up;
    struct box *todo;
    size_t todo_count, todo_room;
    uint64_t *steps;
    uint64_t slid; /* diagonal steps that were not counted yet */
};

static void mark(const struct search *search, int side, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i++)
        search->lines->sides[side].changed[search->numbers[side][i]] = true;
}

static bool spend(struct search *search, uint64_t steps)
{
    steps += search->slid;
    search->slid = 0;
    bool suffices = *search->steps >= steps;
    *search->steps -= suffices ? steps : *search->steps;
    return suffices;
}

/* The diagonals that paths with so many edits reach. */
struct reach {
    int64_t first, last;
};

/* One more edit: the diagonals outside of the box are left out, and those beside the
 * reach get a value that no path comes from. */
static void widen(struct reach *reach, int64_t *furthest, int64_t least, int64_t most,
                  int64_t never)
{
    if (reach->first > least)
        furthest[--reach->first - 1] = never;
    else
        reach->first++;
    if (reach->last < most)
        furthest[++reach->last + 1] = never;
    else
        reach->last--;
}

static bool meets(const struct reach *reach, int64_t diagonal)
{
    return reach->first <= diagonal && diagonal <= reach->last;
}

static int64_t slide_down(struct search *search, const struct box *box, int64_t diagonal)
{
    int64_t from_left = search->down[diagonal - 1] + 1,
            from_above = search->down[diagonal + 1];
    int64_t column = from_left > from_above ? from_left : from_above, from = column;

    while (column < box->right && column - diagonal < box->bottom &&
           search->classes[0][column] == search->classes[1][column - diagonal])
        column++;
    search->slid += (uint64_t)(column - from);
    return column;
}

static int64_t slide_up(struct search *search, const struct box *box, int64_t diagonal)
{
    int64_t from_right = search->up[diagonal + 1] - 1,
            from_below = search->up[diagonal - 1];
    int64_t column = from_right < from_below ? from_right : from_below, from = column;

    while (column > box->left && column - diagonal > box->top &&
           search->classes[0][column - 1] == search->classes[1][column - diagonal - 1])
        column--;
    search->slid += (uint64_t)(from - column);
    return column;
}

/* A point on a shortest path through the box, about half way; false if there are no steps
 * left. */
static bool find_middle(struct search *search, const struct box *box, int64_t *ret_column,
                        int64_t *ret_row)
{
    int64_t least = box->left - box->bottom, most = box->right - box->top;
    int64_t start = box->left - box->top, end = box->right - box->bottom;
    struct reach down = {start, start}, up = {end, end};
    bool is_odd = (start - end) & 1;

    search->down[start] = box->left;
    search->up[end] = box->right;
    for (;;) {
        int64_t column = 0;
        widen(&down, search->down, least, most, INT64_MIN / 2);
        for (int64_t d = down.last; d >= down.first; d -= 2) {
            search->down[d] = column = slide_down(search, box, d);
            if (is_odd && meets(&up, d) && search->up[d] <= column) {
                *ret_column = column;
                *ret_row = column - d;
                return true;
            }
        }
        widen(&up, search->up, least, most, INT64_MAX / 2);
        for (int64_t d = up.last; d >= up.first; d -= 2) {
            search->up[d] = column = slide_up(search, box, d);
            if (!is_odd && meets(&down, d) && column <= search->down[d]) {
                *ret_column = column;
                *ret_row = column - d;
                return true;
            }
        }
        if (!spend(search, (uint64_t)(down.last - down.first + up.last - up.first + 4)))
            return false;
    }
}

static bool push(struct search *search, struct box box)
{
    if (!array_reserve(&search->todo, &search->todo_room, search->todo_count + 1,
                       sizeof *search->todo))
        return false;
    search->todo[search->todo_count++] = box;
    return true;
}

static int search_box(struct search *search, struct box box)
{
    int64_t column, row;

    while (box.left < box.right && box.top < box.bottom &&
           search->classes[0][box.left] == search->classes[1][box.top])
        box.left++, box.top++;
    while (box.left < box.right && box.top < box.bottom &&
           search->classes[0][box.right - 1] == search->classes[1][box.bottom - 1])
        box.right--, box.bottom--;
    bool is_flat = box.left == box.right || box.top == box.bottom;
    if (is_flat || !find_middle(search, &box, &column, &row)) {
        mark(search, 0, box.left, box.right);
        mark(search, 1, box.top, box.bottom);
        return 0;
    }
    return push(search, (struct box){box.left, column, box.top, row}) &&
                   push(search, (struct box){column, box.right, row, box.bottom})
               ? 0
               : -ENOMEM;
}

static int search_all(struct search *search)
{
    size_t diagonals = (size_t)(search->counts[0] + search->counts[1]) + 3;
    AUTO_FREE int64_t *down = calloc(diagonals, sizeof *down);
    AUTO_FREE int64_t *up = calloc(diagonals, sizeof *up);

    if (!down || !up)
        return -ENOMEM;
    search->down = down + search->counts[1] + 1;
    search->up = up + search->counts[1] + 1;
    int error = push(search, (struct box){0, search->counts[0], 0, search->counts[1]})
                    ? 0
                    : -ENOMEM;
    while (!error && search->todo_count)
        error = search_box(search, search->todo[--search->todo_count]);
    return error;
}

static int classify_both(struct search *search, const struct middle *middle,
                         uint32_t *ret_count)
{
    size_t room = 16, lines = 0;

    for (int side = 0; side < 2; side++) {
        size_t count = middle->to[side] - middle->from;
        search->classes[side] = calloc(count + 1, sizeof(uint32_t));
        search->numbers[side] = calloc(count + 1, sizeof(uint32_t));
        if (!search->classes[side] || !search->numbers[side])
            return -ENOMEM;
        search->counts[side] = (int64_t)count;
        lines += count;
    }
    while (room < 2 * lines)
        room *= 2;
    AUTO_FREE struct class *classes = calloc(room, sizeof *classes);
    if (!classes)
        return -ENOMEM;
    *ret_count = 0;
    for (int side = 0; side < 2; side++)
        *ret_count = classify(&search->lines->sides[side], middle->from, middle->to[side],
                              classes, room - 1, *ret_count, search->classes[side]);
    return 0;
}

/* Marks the lines that only one text has and leaves the others to be searched. */
static int collect(struct search *search, const struct middle *middle)
{
    uint32_t class_count;
    int error = classify_both(search, middle, &class_count);

    if (error)
        return error;
    AUTO_FREE unsigned char *sides = calloc(class_count + 1, 1);
    if (!sides)
        return -ENOMEM;
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < search->counts[side]; i++)
            sides[search->classes[side][i]] |= (unsigned char)(1 << side);
    for (int side = 0; side < 2; side++) {
        int64_t kept = 0;
        for (int64_t i = 0; i < search->counts[side]; i++) {
            size_t number = middle->from + (size_t)i;
            if (sides[search->classes[side][i]] != 3) {
                search->lines->sides[side].changed[number] = true;
                continue;
            }
            search->classes[side][kept] = search->classes[side][i];
            search->numbers[side][kept++] = (uint32_t)number;
        }
        search->counts[side] = kept;
    }
    return 0;
}

/* Moves each run of changed lines down as far as equal lines allow, so that an added
 * function shows its own end, and runs that then touch become one. */
static void settle(struct lines_text *side)
{
    for (size_t end = 0; end < side->count;) {
        size_t start = end;
        while (start < side->count && !side->changed[start])
            start++;
        for (end = start; end < side->count;) {
            if (side->changed[end]) {
                end++;
            } else if (is_same(side, start, side, end)) {
                side->changed[start++] = false;
                side->changed[end++] = true;
            } else {
                break;
            }
        }
    }
}

static int compare(struct search *search, size_t before_len, size_t after_len)
{
    int error = split(&search->lines->sides[0], before_len);

    if (!error)
        error = split(&search->lines->sides[1], after_len);
    if (error)
        return error;
    const struct middle middle = trim(search->lines);
    error = collect(search, &middle);
    if (!error)
        error = search_all(search);
    if (!error) {
        settle(&search->lines->sides[0]);
        settle(&search->lines->sides[1]);
    }
    return error;
}

int lines_compare(const char *before, size_t before_len, const char *after,
                  size_t after_len, uint64_t *steps, struct lines *ret_lines)
{
    struct search search = {.lines = ret_lines, .steps = steps};

    *ret_lines = (struct lines){.sides = {{.text = before}, {.text = after}}};
    if (before_len >= UINT32_MAX || after_len >= UINT32_MAX)
        return -E2BIG;
    int error = compare(&search, before_len, after_len);
    for (int side = 0; side < 2; side++) {
        free(search.classes[side]);
        free(search.numbers[side]);
    }
    free(search.todo);
    if (error)
        lines_done(ret_lines);
    return error;
}

void lines_done(struct lines *lines)
{
    for (int side = 0; side < 2; side++) {
        free(lines->sides[side].starts);
        free(lines->sides[side].changed);
    }
    *lines = (struct lines){0};
}
