#pragma once

#include <string>

std::string version();
