#pragma once

// Access to offloaded states between two steps; included by offload_pipeline.hpp.

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "offload_pipeline.hpp"

#include <cstdint>
#include <utility>

namespace ZERO_NAMESPACE::detail {

template <class Config>
template <class T, class Visit>
[[gnu::cold]] void OffloadedStates<Config, true>::fill_parameters(std::size_t bucket,
                                                                  Visit const& visit) {
    for_chunks_of(bucket, [&](std::size_t chunk) {
        std::size_t const index = _gathers++ % larger<std::size_t>(_gather_slots.size(), 1);
        std::byte* memory = nullptr;
        if (_places.has_offloaded_parameters(chunk)) {
            memory = gather_memory(index);
            _gather_slots[index].copied.synchronise();
        }
        for_parameters(chunk, memory, sizeof(T), [&](Piece const& piece, std::byte* values) {
            visit(piece, reinterpret_cast<T*>(values));
        });
        if (_places.has_offloaded_parameters(chunk)) {
            _gather_slots[index].copied =
                _tier->write(_places.request(_places.number(chunk), 1), memory);
        }
    });
    for (GatherSlot const& slot : _gather_slots) {
        slot.copied.synchronise();
    }
    _tier->rethrow_failure();
}

template <class Config>
template <class Visit>
[[gnu::cold]] void OffloadedStates<Config, true>::for_held_parameters(std::size_t bucket,
                                                                      Visit const& visit) const {
    for_chunks_of(bucket, [&](std::size_t chunk) {
        for (Piece const& piece : plan().slices(plan().chunks()[chunk])) {
            visit(piece, held_address(chunk, address(bucket, piece.bucket_begin,
                                                     BufferKind::parameters, 0)));
        }
    });
}

template <class Config>
template <class Visit>
[[gnu::cold]] void OffloadedStates<Config, true>::visit(std::size_t type, Queue queue, bool is_new,
                                                        Visit const& visit) {
    require_no_visit();
    VisitScope const scope(_is_visited);
    release();
    settle();
    for (std::size_t chunk = 0; chunk < plan().updated_chunks(); ++chunk) {
        if (_places.type(chunk) != type) {
            continue;
        }
        if (!is_offloaded(chunk)) {
            visit(chunk);
            continue;
        }
        std::size_t const number = _places.number(chunk);
        begin_read(number, is_new ? 1 : 0);
        wait_for(slot_of(number));
        _tier->rethrow_failure();
        visit(chunk);
        write(number, queue, nullptr, is_new ? 1 : parts);
    }
    settle();
    _tier->rethrow_failure();
}

template <class Config>
[[gnu::cold]] void* OffloadedStates<Config, true>::held_address(std::size_t chunk,
                                                                void* data) const {
    if (!is_offloaded(chunk)) {
        return data;
    }
    std::size_t const number = _places.number(chunk);
    auto const at = reinterpret_cast<std::uintptr_t>(data);
    for (std::size_t part = _places.parts(); part-- > 0;) {
        auto const first = reinterpret_cast<std::uintptr_t>(memory_of(number, part));
        if (at >= first && at < first + _places.part_bytes(number, part)) {
            return _tier->address(_places.request(number, part)) + (at - first);
        }
    }
    return data; // other kinds stay
}

template <class Config>
[[gnu::cold]] std::byte* OffloadedStates<Config, true>::memory_at(void const* address,
                                                                  bool is_written) {
    std::size_t const request = _tier->chunk_at(address);
    if (request == _places.parts() * _places.numbers()) {
        return static_cast<std::byte*>(const_cast<void*>(address));
    }
    std::size_t const number = request % _places.numbers();
    require_no_visit();
    if (!_is_held) {
        settle();
        _is_held = true;
    }
    Slot& slot = slot_of(number);
    if (slot.held != number + 1) {
        write_held(slot);
        slot.held = 0;
        begin_read(number);
        wait_for(slot);
        _tier->rethrow_failure();
        slot.held = number + 1;
    }
    slot.is_written = slot.is_written || is_written;
    return memory_of(number, request / _places.numbers())
           + (static_cast<std::byte const*>(address) - _tier->address(request));
}

template <class Config>
[[gnu::cold]] void OffloadedStates<Config, true>::require_no_visit() const {
    if (_is_visited) {
        throw_error<OutOfOrder>(
            {"zero: rank ", _rank,
             ": offloaded states are read or written while for_each_owned_slice() or an update "
             "of the caller visits them; do it before or after the visit, or take the values "
             "from the slice that is visited."});
    }
}

template <class Config>
[[gnu::cold]] void OffloadedStates<Config, true>::write_held(Slot& slot) {
    if (std::exchange(slot.is_written, false)) {
        for_parts(slot.held - 1, [&](std::size_t part, std::size_t request) {
            slot.written[part] = _tier->write(request, memory_of(slot.held - 1, part));
        });
    }
}

} // namespace ZERO_NAMESPACE::detail
