#pragma once

// LibTorch has a macro of Catch2's name. Included before Catch2, also where several files are one
// unit.

#include <c10/util/Logging.h>

#undef CHECK
