#pragma once

#include "file_job.hpp"

#include <cstdio>
#include <span>
#include <utility>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE FileWrite::FileWrite(FileJob job)
    : _job(std::move(job)), _writer(_job.file, _job.tensors) {}

ZERO_COLD_INLINE bool FileWrite::append_next(Staging const& staging) {
    while (_source < _job.sources.size() && _begin == _job.sources[_source].bytes) {
        ++_source;
        _begin = 0;
    }
    if (_source == _job.sources.size()) {
        return false;
    }
    TensorSource const& source = _job.sources[_source];
    auto const* data = static_cast<std::byte const*>(source.data) + _begin;
    std::size_t const block = source.codec == nullptr ? 1 : source.codec->bytes;
    std::size_t const bytes = smaller(piece_bytes / block * block, source.bytes - _begin);
    if (staging.buffer != nullptr && !source.is_on_host) {
        staging.copy(staging.buffer, data, bytes);
        data = staging.buffer;
    }
    if (source.codec == nullptr) {
        _writer.append({data, bytes});
    } else {
        std::size_t const first = _begin / block * coded_elements;
        _decoded.resize(smaller(bytes / block * coded_elements, source.elements - first));
        source.codec->read(data, 0, _decoded.size(), _decoded.data());
        _writer.append(std::as_bytes(std::span(_decoded)));
    }
    _begin += bytes;
    return true;
}

ZERO_COLD_INLINE std::uint64_t write_file(FileJob job, Staging const& staging) {
    FileWrite write(std::move(job));
    while (write.append_next(staging)) {}
    return write.finish();
}

} // namespace ZERO_NAMESPACE::detail

#if defined(__linux__)
#include <sched.h>
#endif

namespace ZERO_NAMESPACE::detail {

/// Without this, a training step that runs at the same time takes up to twice as long. On other
/// systems a priority belongs to the whole process.
ZERO_COLD_INLINE void lower_priority_of_thread() noexcept {
#if defined(__linux__)
    sched_param const priority{};
    (void)::sched_setscheduler(0, SCHED_IDLE, &priority); // the thread also works without it
#endif
}

ZERO_COLD_INLINE BackgroundWrite::~BackgroundWrite() {
    join();
    try {
        if (_failure) {
            std::rethrow_exception(_failure);
        }
    } catch (std::exception const& error) {
        std::fprintf(stderr, "zero: a checkpoint was given up: %s\n", error.what());
    }
}

ZERO_COLD_INLINE void BackgroundWrite::give_up() noexcept {
    join();
    _write.reset();
    _failure = nullptr;
    _is_done = true;
}

ZERO_COLD_INLINE void BackgroundWrite::start(FileJob job, Staging const& staging) {
    _failure = nullptr;
    _is_awaited = false;
    _write.emplace(std::move(job));
    while (staging.buffer != nullptr && _write->append_next(staging)) {}
    _is_done = false;
    try {
        _thread = std::thread([this] {
            lower_priority_of_thread();
            advance(_is_awaited);
        });
    } catch (...) { // no thread could be started
        _is_done = true;
        throw;
    }
}

ZERO_COLD_INLINE void BackgroundWrite::advance(std::atomic<bool> const& stop) noexcept {
    try {
        while (!stop) {
            if (!_write->append_next({})) {
                _checksum = _write->finish();
                _is_done = true;
                return;
            }
        }
    } catch (...) {
        _failure = std::current_exception();
        _is_done = true;
    }
}

ZERO_COLD_INLINE void BackgroundWrite::join() noexcept {
    _is_awaited = true;
    if (_thread.joinable()) {
        _thread.join();
    }
}

ZERO_COLD_INLINE std::uint64_t BackgroundWrite::wait() {
    join();
    if (!_is_done) {
        advance(std::atomic<bool>(false));
    }
    _write.reset();
    if (_failure) {
        std::rethrow_exception(std::exchange(_failure, nullptr));
    }
    return _checksum;
}

} // namespace ZERO_NAMESPACE::detail
