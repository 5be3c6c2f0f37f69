/* SPDX-License-Identifier: Apache-2.0 */
#include "network/address.h"

#include <arpa/inet.h>
#include <string.h>

bool network_address_parse(const char *text, struct network_address *ret_address)
{
    *ret_address = (struct network_address){.len = 4};
    if (inet_pton(AF_INET, text, ret_address->bytes) == 1)
        return true;
    ret_address->len = 16;
    return inet_pton(AF_INET6, text, ret_address->bytes) == 1;
}

void network_address_format(const struct network_address *address,
                            char ret_text[NETWORK_ADDRESS_TEXT])
{
    ret_text[0] = '\0';
    inet_ntop(address->len == 4 ? AF_INET : AF_INET6, address->bytes, ret_text,
              NETWORK_ADDRESS_TEXT);
}

bool network_address_equal(const struct network_address *one,
                           const struct network_address *other)
{
    return network_address_within(one, other, 8u * other->len);
}

void network_address_mask(struct network_address *address, unsigned bits)
{
    for (unsigned i = 0; i < address->len; i++) {
        unsigned kept = bits > 8 * i ? bits - 8 * i : 0;
        if (kept < 8)
            address->bytes[i] &= (uint8_t)(0xFF00u >> kept);
    }
}

bool network_address_within(const struct network_address *address,
                            const struct network_address *range, unsigned bits)
{
    struct network_address one = *address, other = *range;

    network_address_mask(&one, bits);
    network_address_mask(&other, bits);
    return one.len == other.len && memcmp(one.bytes, other.bytes, one.len) == 0;
}

#define V4(...)                                                                          \
    {                                                                                    \
        4,                                                                               \
        {                                                                                \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }
#define V6(...)                                                                          \
    {                                                                                    \
        16,                                                                              \
        {                                                                                \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }

static const char metadata[] = "a metadata service of clouds";

/* A class stands before those that contain it. */
static const struct network_class classes[] = {
    {V4(169, 254, 169, 254), 32, 32, 0, "169.254.169.254", metadata},
    {V4(169, 254, 170, 2), 32, 32, 0, "169.254.170.2", metadata},
    {V4(100, 100, 100, 200), 32, 32, 0, "100.100.100.200", metadata},
    {V4(168, 63, 129, 16), 32, 32, 0, "168.63.129.16", metadata},
    {V4(192, 0, 0, 192), 32, 32, 0, "192.0.0.192", metadata},
    {V4(0), 8, 255, 0, "0.0.0.0/8", "this host"},
    {V4(10), 8, 8, 0, "10.0.0.0/8", "private"},
    {V4(100, 64), 10, 10, 0, "100.64.0.0/10", "private to a carrier"},
    {V4(127), 8, 8, 0, "127.0.0.0/8", "the host's loopback"},
    {V4(169, 254), 16, 16, 0, "169.254.0.0/16", "link-local"},
    {V4(172, 16), 12, 12, 0, "172.16.0.0/12", "private"},
    {V4(192, 0, 0), 24, 24, 0, "192.0.0.0/24", "reserved"},
    {V4(192, 168), 16, 16, 0, "192.168.0.0/16", "private"},
    {V4(198, 18), 15, 15, 0, "198.18.0.0/15", "private to a sandbox"},
    {V4(224), 3, 255, 0, "224.0.0.0/3", "multicast or reserved"},
    {V6(0xfd, 0, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54), 128, 128, 0, "fd00:ec2::254",
     metadata},
    {V6(0xfd, 0x20, 0, 0xce, [14] = 0x02, [15] = 0x54), 128, 128, 0, "fd20:ce::254",
     metadata},
    {V6([15] = 1), 128, 128, 0, "::1", "the host's loopback"},
    {V6([10] = 0xff, [11] = 0xff), 96, 255, 0, "::ffff:0:0/96", "IPv4 in disguise"},
    {V6(0), 96, 255, 0, "::/96", "this host"},
    {V6(0, 0x64, 0xff, 0x9b), 96, 96, 12, "64:ff9b::/96", "IPv4 behind a translator"},
    {V6(0, 0x64, 0xff, 0x9b, 0, 1), 48, 48, 0, "64:ff9b:1::/48",
     "IPv4 behind a translator"},
    {V6(0x20, 0x01), 32, 32, 0, "2001::/32", "IPv4 in a tunnel"},
    {V6(0x20, 0x02), 16, 16, 2, "2002::/16", "IPv4 in a tunnel"},
    {V6(0xfc), 7, 7, 0, "fc00::/7", "private"},
    {V6(0xfe, 0x80), 10, 10, 0, "fe80::/10", "link-local"},
    {V6(0xfe, 0xc0), 10, 10, 0, "fec0::/10", "private"},
    {V6(0xff), 8, 255, 0, "ff00::/8", "multicast"},
};

const struct network_class *network_class_find(const struct network_address *address)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (network_address_within(address, &classes[i].range, classes[i].bits))
            return &classes[i];
    return NULL;
}
