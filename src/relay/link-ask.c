/* SPDX-License-Identifier: Apache-2.0 */

/* Links that wait for approval, since no rule allows or denies their destination.  The
 * process that requests it is outside: it lists the destinations, and sends the replies
 * (native/egress.c).  Nothing is looked up, and no byte leaves, before that. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/error.h"
#include "relay/link.h"

/* --- Destinations --- */

static bool is_to(const struct link *link, const struct relay_destination *to)
{
    if (link->state != ASKING || link->port != to->port)
        return false;
    return link->named
               ? strcmp(link->named->name, to->name) == 0
               : !to->name[0] && network_address_equal(&link->destination, &to->address);
}

static struct relay_destination destination_of(const struct link *link)
{
    struct relay_destination to = {.port = link->port};

    if (link->named)
        cay_copy_text(to.name, sizeof to.name, link->named->name);
    else
        to.address = link->destination;
    return to;
}

/* "name:443" or "[2001:db8::1]:443": also the rule that allows it. */
static void format_destination(const struct link *link, char *ret_text, size_t room)
{
    char address[NETWORK_ADDRESS_TEXT];
    bool is_six = !link->named && link->destination.len == 16;

    if (!link->named)
        network_address_format(&link->destination, address);
    snprintf(ret_text, room, "%s%s%s:%d", is_six ? "[" : "",
             link->named ? link->named->name : address, is_six ? "]" : "", link->port);
}

void link_list_asking(const struct server *server, struct relay_asked *ret_asked)
{
    uint64_t now = clock_ms();

    for (const struct link *link = server->links; link; link = link->next) {
        uint32_t i = 0;
        if (link->state != ASKING)
            continue;
        while (i < ret_asked->count && !is_to(link, &ret_asked->at[i]))
            i++;
        if (i == RELAY_ASKED_MAX)
            continue;
        struct relay_destination *to = &ret_asked->at[i];
        if (i == ret_asked->count) {
            *to = destination_of(link);
            ret_asked->count++;
        }
        uint64_t left = link->deadline_ms > now ? link->deadline_ms - now : 0;
        to->is_asked |= link->is_asked;
        if (left > to->left_ms)
            to->left_ms = (uint32_t)left;
    }
}

/* --- Waiting --- */

/* A sandbox decides how many there are. */
static bool has_room(const struct server *server, struct link *link)
{
    struct relay_asked asked = {.count = 0};
    const struct relay_destination to = destination_of(link);
    size_t count = 0;
    bool is_known = false;

    link_list_asking(server, &asked);
    for (const struct link *at = server->links; at; at = at->next) {
        if (at->state != ASKING || at == link)
            continue;
        count++;
        if (is_to(at, &to)) {
            is_known = true;
            link->is_asked |= at->is_asked;
        }
    }
    return count < RELAY_ASKED_LINKS_MAX && (is_known || asked.count < RELAY_ASKED_MAX);
}

void link_ask(struct server *server, struct link *link)
{
    if (link->is_held)
        return;
    if (!has_room(server, link)) {
        cay_copy_text(link->rule, sizeof link->rule, "default");
        link_refuse(server, link, 403,
                    "cay: too many connections wait for approval (the limits are %d, and "
                    "%d destinations)",
                    RELAY_ASKED_LINKS_MAX, RELAY_ASKED_MAX);
        return;
    }
    link->is_held = true;
    link->state = ASKING;
    link_set_deadline(server, link, network_rules_ask(server->rules));
}

void link_check_asking(struct server *server, struct link *link)
{
    char byte;
    ssize_t got = recv(link->client.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (got == 0 || (got < 0 && errno != EAGAIN))
        link_end(server, link, true);
}

void link_refuse_asking(struct server *server, struct link *link, const char *why)
{
    char text[NETWORK_NAME_MAX + 16];

    format_destination(link, text, sizeof text);
    cay_copy_text(link->rule, sizeof link->rule, "not approved");
    link_refuse(server, link, 403, "cay: %s %s", text, why);
}

void link_ask_again(struct server *server, struct link *link)
{
    link_decide(server, link);
    if (!link->is_checked && link->state != ASKING && link->state <= RELAYING)
        (void)link_check_hello(server, link, false);
}

/* --- Replies --- */

void link_answer(struct server *server, const struct relay_answer *answer)
{
    for (struct link *link = server->links; link; link = link->next) {
        if (!is_to(link, &answer->to))
            continue;
        if (answer->kind == RELAY_ANSWER_ASKED) {
            link->is_asked = true;
        } else if (answer->kind == RELAY_ANSWER_YES) {
            link->is_approved = true;
            link_ask_again(server, link);
        } else {
            link_refuse_asking(server, link, "was not approved");
        }
    }
}

/* With one rule more, for this connection. */
void link_check_approved(const struct server *server, const struct link *link,
                         const struct network_address *address,
                         const struct network_addresses *own,
                         struct network_answer *answer)
{
    AUTO_BUF text = {.max = NETWORK_TEXT_MAX};
    AUTO_NETWORK_RULES rules = NULL;
    char more[NETWORK_NAME_MAX + 16];

    format_destination(link, more, sizeof more);
    if (!network_rules_write(server->rules, &text) || !buf_format(&text, "%s\n", more) ||
        network_rules_read(text.data, text.len, &rules, NULL) != CAY_OK)
        return;
    if (link->named)
        network_check_resolved(rules, link->named->name, address, link->port, own,
                               answer);
    else
        network_check_address(rules, address, link->port, own, answer);
    if (answer->verdict == NETWORK_ALLOW)
        cay_copy_text(answer->rule, sizeof answer->rule, "approved");
}
