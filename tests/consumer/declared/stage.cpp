#include "stage.hpp"

ZERO_DEFINE_STAGE(Zero);
