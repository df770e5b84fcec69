#pragma once
#include "../declarations.h"
