#pragma once

// Process groups of LibTorch over gloo, whose ranks are threads or processes of this machine.

#include "no_check_macro.hpp"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <zero/torch/process_group_communicator.hpp>

#include <chrono>

namespace zero::test {

/// @brief Connects one rank with the others, which find it through the store.
inline c10::intrusive_ptr<c10d::Backend>
gloo_group(c10::intrusive_ptr<c10d::Store> const& store, int rank, int world,
           std::chrono::milliseconds time_out = std::chrono::seconds(60)) {
    auto const options = c10d::ProcessGroupGloo::Options::create(time_out);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, world, options);
}

} // namespace zero::test
