#pragma once

// A backend that calls itself a device, for states in memory of its host.

#include "stage.hpp"

#include <zero/stage/update_on_host.hpp>

struct Device : zero::HostBackend {
    static constexpr bool is_device = true;
};
