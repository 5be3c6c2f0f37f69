/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FOLDER_H
#define FOLDER_H

#include <cay/backend.h>

extern const struct cay_backend folder_backend;

#endif
