#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/memory_resource.hpp"
#include "../core/set_by_name.hpp"
#include "../core/source_location.hpp"
#include "../layout/memory_plan.hpp"
#include "../layout/padding.hpp"
#include "../stage/detail/common/gather_on_host.hpp"
#include "detail/nccl/nccl_flights.hpp"
#include "detail/nccl/nccl_session.hpp"
#include "nccl_communicator.hpp"
#include "nccl_error.hpp"
#include "nccl_library.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace ZERO_NAMESPACE::cuda {

/// @brief The one block of an `NcclMemoryResource` in which all buffers of collectives lie. Ranks
/// may have different plans; `symmetric` must be equal.
struct NcclArena {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// The bytes of the buffers: `Engine::memory_plan` of an equal engine, or what `plan_memory`
    /// returns. Add the plans (`+=`) of engines that exist at the same time; for `rebuild_buckets`
    /// add the plan to itself.
    MemoryPlan plan{};
    /// Whether NCCL makes a symmetric window of the block (NCCL 2.27), which its fastest kernels
    /// inside of a machine and `NcclCtaPolicy::zero` need. Where the machine cannot have one, the
    /// block is registered in the usual way (`NcclMemoryResource::is_symmetric`).
    bool symmetric = false;
};

/// @brief An engine's memory resource that takes buffers of collectives from NCCL, registered with
/// a communicator, and everything else from another resource.
///
/// NCCL can access such buffers over NVLink and the network without staging copies. What it
/// allocates is a whole number of device pages (2 MiB, up to 512 MiB before NCCL 2.26 on machines
/// with NVSwitch). With an `NcclArena` they lie in one block, allocated and registered once;
/// otherwise each is allocated and registered by itself. Scalars, states and master weights stay
/// with the other resource. Owns the registrations. Destroy the owners of the memory first, then
/// this resource, then the communicator. Thread-safe.
class NcclMemoryResource final : public MemoryResource {
public:
    /// @brief Without an arena: every buffer of collectives is a block of NCCL.
    /// @param communicator must outlive this object, as must `other`
    template <class B>
    NcclMemoryResource(BasicNcclCommunicator<B>& communicator, MemoryResource& other) noexcept
        : _session(&communicator.session()), _other(&other) {}

    /// @brief Allocates and registers an arena on the current device. Collective; waits.
    ///
    /// Each kind of buffer has a part of the arena that is as large as the largest row of all
    /// ranks, from a multiple of 4 KiB on, and 4 KiB longer, because buffers begin at multiples of
    /// 128 bytes. So unequal shards move no other kind: whatever NCCL reads or writes on a peer has
    /// one offset on all ranks, as windows require.
    /// @param queue for the collectives in which ranks compare their arenas; @param other gives
    /// them memory
    /// @throws InvalidArgument before anything is sent if this NCCL has no windows, and on every
    /// rank if no plan has bytes; LayoutMismatch on every rank if `symmetric` differs; NcclError on
    /// every rank if one has no memory; TimedOut, NcclError, Aborted if the registration fails
    template <class B>
    NcclMemoryResource(BasicNcclCommunicator<B>& communicator, MemoryResource& other,
                       typename B::Queue queue, NcclArena const& arena)
        : NcclMemoryResource(communicator, other) {
        make_arena(arena, zero::detail::gather_over(communicator, queue, other));
    }

    NcclMemoryResource(NcclMemoryResource const&) = delete;
    NcclMemoryResource& operator=(NcclMemoryResource const&) = delete;

    ~NcclMemoryResource() override {
        if (_arena != nullptr) {
            _session->deregister_window(_window);
            _session->deregister_memory(_registration);
            _session->interfaces().nccl->memory_free(_arena);
        }
    }

    /// @brief If `is_moved_by_collectives`, returns a place in the arena, or where it has none, a
    /// block of its own, which NCCL allocates on the current device and registers. Otherwise
    /// allocates from the other resource. O(buffers).
    /// @throws InvalidArgument if there is no place in a symmetric arena: outside of it peers could
    /// not find the buffer; NcclError; Aborted after an abort; any exception of the other resource
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind kind) override {
        if (!is_moved_by_collectives(kind)) {
            return _other->allocate(bytes, kind);
        }
        if (void* const place = take_place(bytes, kind); place != nullptr) {
            return place;
        }
        NcclLibrary& nccl = *_session->interfaces().nccl;
        void* memory = nullptr;
        detail::require_success(
            nccl, nccl.memory_allocate(memory, bytes),
            zero::detail::text({"ncclMemAlloc of ", bytes, " bytes for ", name_of(kind)}));
        try {
            keep(memory, bytes);
        } catch (...) {
            nccl.memory_free(memory);
            throw;
        }
        return memory;
    }

    /// @brief Gives a place back, or ends the registration, unless an abort has ended it, and frees
    /// the memory. No stream may use the memory any more.
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        if (!is_moved_by_collectives(kind)) {
            _other->deallocate(memory, bytes, kind);
        } else if (!give_place_back(memory, kind)) {
            _session->deregister_memory(forget(memory));
            _session->interfaces().nccl->memory_free(memory);
        }
    }

    /// @brief Returns whether a buffer of this kind comes from NCCL: parameters, gradients, leases,
    /// the wire buffer and weights in codes.
    static constexpr bool is_moved_by_collectives(BufferKind kind) noexcept {
        return kind == BufferKind::parameters || kind == BufferKind::gradients
               || kind == BufferKind::gradient_leases || kind == BufferKind::parameter_leases
               || kind == BufferKind::wire || kind == BufferKind::weight_codes;
    }

    /// @brief Returns whether NCCL has made a symmetric window of the arena.
    [[nodiscard]] bool is_symmetric() const noexcept { return _window != nullptr; }

    /// @brief Returns the bytes that NCCL has taken from the device for the arena and for blocks
    /// beside it, rounding included. The other resource counts its own.
    [[nodiscard]] std::size_t nccl_bytes() const {
        std::lock_guard const lock(_mutex);
        return _nccl_bytes;
    }

    /// @brief Returns the bytes of the arena that buffers occupy, each rounded up to 128.
    [[nodiscard]] std::size_t arena_bytes_in_use() const {
        std::lock_guard const lock(_mutex);
        std::size_t sum = 0;
        for (Part const& part : _parts) {
            for (Range const& place : part.places) {
                sum += place.size();
            }
        }
        return sum;
    }

private:
    static constexpr std::size_t alignment = 128;
    static constexpr std::size_t page = 4096; ///< NCCL_WIN_REQUIRED_ALIGNMENT

    struct Registration {
        void* memory;
        void* handle;
        std::size_t taken; ///< bytes of the device
    };

    /// The part of the arena in which buffers of one kind lie.
    struct Part {
        Range all;                 ///< bytes of the arena
        std::vector<Range> places; ///< in use, ascending
    };

    void make_arena(NcclArena const& arena,
                    zero::detail::FunctionRef<std::vector<std::uint64_t> const&, char const*,
                                              std::vector<std::uint64_t>&>
                        gather) {
        NcclLibrary& nccl = *_session->interfaces().nccl;
        if (arena.symmetric && !nccl.has_windows()) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: cuda::NcclArena::symmetric on rank ", _session->rank(),
                 ": this cuda::NcclLibrary has no windows (ncclCommWindowRegister, in NCCL since "
                 "2.27; "
                 "the program was compiled with the header of NCCL ",
                 detail::nccl_version_text(nccl.header_version()),
                 "); leave it false, or compile with a newer one."});
        }
        std::vector<std::uint64_t> own{arena.symmetric ? 1U : 0U};
        for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
            MemoryRow const& row = arena.plan.rows[kind];
            bool const lies_here =
                is_moved_by_collectives(static_cast<BufferKind>(kind)) && !row.is_callers;
            own.push_back(lies_here ? row.bytes() : 0);
        }
        std::vector<std::uint64_t> all;
        gather(own, "the size of the arena of cuda::NcclMemoryResource", all);
        _is_asked_symmetric = arena.symmetric;
        std::size_t const bytes = divide(all, own.size());
        void* memory = nullptr;
        NcclResult const result = nccl.memory_allocate(memory, bytes);
        _arena = result == NcclResult::success ? static_cast<std::byte*>(memory) : nullptr;
        gather({static_cast<std::uint64_t>(result)}, "the arena of cuda::NcclMemoryResource", all);
        detail::require_success(
            nccl, result,
            zero::detail::text(
                {"ncclMemAlloc of ", bytes, " bytes for an arena on rank ", _session->rank()}));
        require_all_allocated(all, bytes);
        _nccl_bytes = nccl.memory_size(memory, bytes);
        _window = arena.symmetric ? _session->register_window(memory, bytes) : nullptr;
        _registration = is_symmetric() ? nullptr : _session->register_memory(memory, bytes);
    }

    /// Gives each kind a part that is as large as the largest of all ranks, and returns the end of
    /// the last one. @param all `symmetric` and the bytes by kind, `stride` numbers of each rank
    std::size_t divide(std::vector<std::uint64_t> const& all, std::size_t stride) {
        std::size_t end = 0;
        for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
            std::size_t most = 0;
            for (std::size_t rank = 0; rank < all.size() / stride; ++rank) {
                most = zero::detail::larger<std::size_t>(most, all[rank * stride + 1 + kind]);
                if (all[rank * stride] != all[0]) {
                    zero::detail::throw_error<LayoutMismatch>(
                        {"zero: cuda::NcclArena::symmetric is ", all[0] != 0 ? "true" : "false",
                         " on rank 0 and ", all[0] != 0 ? "false" : "true", " on rank ", rank,
                         "; give all ranks the same."});
                }
            }
            std::size_t const size = most == 0 ? 0 : round_up(most, page) + page;
            _parts[kind].all = {end, end + size};
            end += size;
        }
        if (end == 0) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: cuda::NcclArena::plan has no bytes of parameters, gradients, leases, wire "
                 "or "
                 "weight codes (rank ",
                 _session->rank(),
                 "), which are what an arena holds; give it Engine::memory_plan() of an equal "
                 "engine, or make the cuda::NcclMemoryResource without an arena."});
        }
        return end;
    }

    static void require_all_allocated(std::vector<std::uint64_t> const& results,
                                      std::size_t bytes) {
        for (std::size_t rank = 0; rank < results.size(); ++rank) {
            if (results[rank] != 0) {
                throw NcclError(zero::detail::text(
                                    {"zero: rank ", rank, " could not allocate ", bytes,
                                     " bytes for the arena of cuda::NcclMemoryResource (NCCL code ",
                                     results[rank], "); its own error says why."}),
                                SourceLocation::current(), static_cast<int>(results[rank]));
            }
        }
    }

    /// Returns the first place in the part of this kind that is large enough, or null.
    void* take_place(std::size_t bytes, BufferKind kind) {
        std::lock_guard const lock(_mutex);
        Part& part = _parts[static_cast<std::size_t>(kind)];
        if (_arena != nullptr && bytes <= part.all.size()) {
            std::size_t const size = round_up(bytes, alignment);
            std::size_t begin = part.all.begin;
            auto next = part.places.begin();
            for (; next != part.places.end() && next->begin - begin < size; ++next) {
                begin = next->end;
            }
            if (part.all.end - begin >= size) {
                part.places.insert(next, Range{begin, begin + size});
                return _arena + begin;
            }
        }
        if (_is_asked_symmetric) {
            std::size_t used = 0;
            for (Range const& place : part.places) {
                used += place.size();
            }
            zero::detail::throw_error<InvalidArgument>(
                {"zero: the arena on rank ", _session->rank(), " has no place for ", bytes,
                 " bytes of ", name_of(kind), ": it has ", part.all.size(), ", of which ", used,
                 " are in use, and cuda::NcclArena::symmetric allows none outside of it; "
                 "cuda::NcclArena::plan "
                 "must be the sum of the plans of all engines that exist at the same time, twice "
                 "the plan with rebuild_buckets."});
        }
        return nullptr;
    }

    bool give_place_back(void* memory, BufferKind kind) noexcept {
        std::lock_guard const lock(_mutex);
        auto& places = _parts[static_cast<std::size_t>(kind)].places;
        for (auto place = places.begin(); place != places.end(); ++place) {
            if (_arena + place->begin == memory) {
                places.erase(place);
                return true;
            }
        }
        return false;
    }

    void keep(void* memory, std::size_t bytes) {
        std::lock_guard const lock(_mutex);
        _registrations.push_back({memory, nullptr, 0});
        try {
            _registrations.back().handle = _session->register_memory(memory, bytes);
        } catch (...) {
            _registrations.pop_back();
            throw;
        }
        std::size_t const taken = _session->interfaces().nccl->memory_size(memory, bytes);
        _registrations.back().taken = taken;
        _nccl_bytes += taken;
    }

    void* forget(void* memory) noexcept {
        std::lock_guard const lock(_mutex);
        for (Registration& registration : _registrations) {
            if (registration.memory == memory) {
                void* const handle = registration.handle;
                _nccl_bytes -= registration.taken;
                registration = _registrations.back();
                _registrations.pop_back();
                return handle;
            }
        }
        return nullptr;
    }

    detail::NcclSession* _session;
    MemoryResource* _other;
    mutable std::mutex _mutex;
    std::vector<Registration> _registrations; ///< few, one per buffer outside of the arena
    std::array<Part, buffer_kinds> _parts;    ///< empty without an arena
    std::byte* _arena = nullptr;
    void* _window = nullptr;       ///< of the arena
    void* _registration = nullptr; ///< of an arena without a window
    bool _is_asked_symmetric = false;
    std::size_t _nccl_bytes = 0;
};

} // namespace ZERO_NAMESPACE::cuda
