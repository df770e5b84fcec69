#pragma once

#include "file_job.hpp"

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
    auto const* data = static_cast<std::byte const*>(_job.sources[_source].data) + _begin;
    std::size_t const bytes = smaller(piece_bytes, _job.sources[_source].bytes - _begin);
    if (staging.buffer != nullptr) {
        staging.copy(staging.buffer, data, bytes);
        data = staging.buffer;
    }
    _writer.append({data, bytes});
    _begin += bytes;
    return true;
}

ZERO_COLD_INLINE std::uint64_t write_file(FileJob job, Staging const& staging) {
    FileWrite write(std::move(job));
    while (write.append_next(staging)) {}
    return write.finish();
}

} // namespace ZERO_NAMESPACE::detail
