#pragma once

#include "background_write.hpp"

#include <cstdio>
#include <utility>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE BackgroundWrite::~BackgroundWrite() {
    try {
        wait();
    } catch (std::exception const& error) {
        std::fprintf(stderr, "zero: a checkpoint was given up: %s\n", error.what());
    }
}

ZERO_COLD_INLINE void BackgroundWrite::start(FileJob job) {
    _is_done = false;
    _failure = nullptr;
    try {
        _thread = std::thread([this, job = std::move(job)] {
            try {
                _checksum = job.write({});
            } catch (...) {
                _failure = std::current_exception();
            }
            _is_done = true;
        });
    } catch (...) { // no thread could be started
        _is_done = true;
        throw;
    }
}

ZERO_COLD_INLINE std::uint64_t BackgroundWrite::wait() {
    if (_thread.joinable()) {
        _thread.join();
    }
    if (_failure) {
        std::rethrow_exception(std::exchange(_failure, nullptr));
    }
    return _checksum;
}

} // namespace ZERO_NAMESPACE::detail
