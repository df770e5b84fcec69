#pragma once

/// @file
/// @brief Moves the states of an engine out of memory between two steps, and back. It needs
/// xxhash.h, which the CMake target `zero::tier` finds.

#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/memory_resource.hpp"
#include "../core/set_by_name.hpp"
#include "../tier/file_calls.hpp"
#include "../tier/file_tier.hpp"
#include "detail/common/engine_config.hpp"
#include "detail/engine/protocol.hpp"
#include "detail/memory/engine_memory.hpp"
#include "detail/memory/parked_blocks.hpp"
#include "detail/state/state_access.hpp"
#include "engine.hpp"
#include "stage_options.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Options of `offload_states`.
struct OffloadStatesOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// A folder that exists, on the disk that shall hold the states. Empty for that of
    /// `StageOptions::offload` and its `allow_page_cache`, where the stage has it, and on a device
    /// for page-locked memory of the host.
    std::filesystem::path path{};
    bool blocking = true; ///< false returns before the memory is free; `where` says when it is
    /// Bytes that move as one request, at least 4096. Up to six requests are in memory while
    /// states move.
    std::uint64_t chunk_bytes = std::uint64_t{8} << 20U;
    bool allow_page_cache = false; ///< as in `FileTierOptions`
    FileCalls* calls = nullptr;    ///< replaces the calls of the system, for tests of failures
};

/// @brief Options of `reload_states`.
struct ReloadStatesOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    std::vector<BufferKind> kinds{};           ///< those to move back; empty for all
    bool blocking = true; ///< false returns before they are back; calls that use them wait
};

/// @brief Where the engine's buffers of a kind are, as `where` returns it.
enum class StatesPlace : std::uint8_t {
    nowhere,         ///< the engine has none: the stage needs none, or they are the caller's memory
    memory,          ///< all of them have memory
    file,            ///< their values are in a file, and their memory was given back
    memory_and_file, ///< a part is in a file: an `Offload` with a ratio
    host_memory      ///< they belong to a device, and are in page-locked memory of its host
};

/// @brief Returns the name for messages.
[[nodiscard]] constexpr char const* name_of(StatesPlace place) noexcept {
    constexpr char const* names[] = {"nowhere", "memory", "file", "memory and file", "host memory"};
    return names[static_cast<std::size_t>(place)];
}

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

/// @brief What copies an engine's blocks.
template <class Backend>
struct CopierOf {
    using Type = HostCopier;
};

template <class Backend>
    requires requires { typename Backend::Copier; }
struct CopierOf<Backend> {
    using Type = typename Backend::Copier;
};

/// @brief Moves states of an engine out of its memory and back. Created by its first
/// `offload_states`.
template <class Config>
class Parking final : public ParkedStates {
    using Backend = typename Config::Backend;
    static constexpr bool is_on_device = requires { requires Backend::is_device; };
    static_assert(!is_on_device || requires {
        typename Backend::Copier;
        Backend::staging_memory();
    }, "zero: offload_states() copies memory of the device in a thread of its own; give the "
       "engine's backend a 'struct Copier' and 'static MemoryResource& staging_memory()', as "
       "zero::cuda::Backend has them.");

public:
    explicit Parking(Engine<Config>& engine) noexcept : _access(engine) {}

    /// @brief Returns that of an engine, which it makes if there is none.
    /// @throws OutOfOrder while averages are shown
    static Parking& of(Engine<Config>& engine, char const* call) {
        Protocol& protocol = StateAccess<Config>(engine).parking();
        if (protocol.parked() != nullptr && !protocol.parked()->is_offloaded()) {
            protocol.parked()->require_here(call, StateUse::change);
        }
        if (protocol.parked() == nullptr) {
            protocol.park(std::make_unique<Parking>(engine));
        }
        return static_cast<Parking&>(*protocol.parked());
    }

    void offload(std::vector<BufferKind> const& named, OffloadStatesOptions const& options) {
        Protocol& protocol = _access.parking();
        protocol.require_between_steps("offload_states()");
        protocol.require_nothing_held("offload_states()");
        protocol.require_nothing_written("offload_states()");
        for (BufferKind const kind : named) {
            require_movable(kind);
            require_own(kind);
        }
        finish(KindSet::movable());
        KindSet kinds;
        for (auto const& block : _access.engine_memory().blocks()) {
            if (!away().has(block.kind) && (named.empty() || KindSet::of(named).has(block.kind))) {
                kinds.add(block.kind);
            }
        }
        if (kinds.is_empty()) {
            return;
        }
        if (!_access.engine_memory().resource().can_give_back_pages()) {
            throw_error<InvalidArgument>(
                {"zero: ", protocol.rank_text(),
                 ": offload_states() needs a memory resource that can give back pages, and that of "
                 "this engine cannot. ",
                 is_on_device ? "Set options.memory to a zero::cuda::VirtualMemory, not behind a "
                                "zero::cuda::NcclMemoryResource, whose memory NCCL keeps"
                              : "Leave options.memory out (HostMemoryResource can)",
                 ". A resource of your own overrides can_give_back_pages(), give_back_pages() and "
                 "take_pages_again(), or forwards them to the resource that it wraps."});
        }
        FileTierOptions file;
        file.path = options.path;
        if constexpr (requires { _access.options().offload.path; }) {
            if (options.path.empty()) {
                file.path = _access.options().offload.path;
                file.allow_page_cache = _access.options().offload.allow_page_cache;
            }
        }
        if (options.chunk_bytes < least_chunk_bytes) {
            throw_error<InvalidArgument>({"zero: ", protocol.rank_text(),
                                          ": chunk_bytes of offload_states() is ",
                                          options.chunk_bytes, " bytes; it must be at least ",
                                          least_chunk_bytes, ", and is usually 8 MiB."});
        }
        file.chunk_bytes = options.chunk_bytes;
        file.allow_page_cache = file.allow_page_cache || options.allow_page_cache;
        file.calls = options.calls;
        bool const is_file = !is_on_device || !file.path.empty();
        auto parked =
            std::make_unique<Parked>(_access.engine_memory(), kinds, is_file ? &file : nullptr,
                                     host_memory(), protocol.rank_text());
        _moves.reserve(_moves.size() + 1);
        _access.wait_for_all();
        parked->begin_write();
        _moves.push_back(std::move(parked));
        set_phase();
        if (options.blocking) {
            finish(kinds);
        }
    }

    void reload(ReloadStatesOptions const& options) {
        if (_is_lost) {
            _access.protocol().require_alive();
        }
        for (BufferKind const kind : options.kinds) {
            require_movable(kind);
        }
        KindSet const kinds =
            options.kinds.empty() ? KindSet::movable() : KindSet::of(options.kinds);
        finish(kinds);
        for (auto const& move : _moves) {
            if (!(move->kinds() & kinds).is_empty()) {
                move->begin_read(kinds);
            }
        }
        if (options.blocking) {
            finish(kinds);
        }
    }

    [[nodiscard]] StatesPlace place(BufferKind kind) const {
        bool in_memory = false;
        bool in_file = _access.is_in_tier(kind);
        bool on_host = lies_on_host<Config>(kind);
        KindSet moved;
        for (auto const& move : _moves) {
            moved = moved | move->moved();
            on_host = on_host || (!move->is_file() && move->moved().has(kind));
        }
        for (auto const& block : _access.engine_memory().blocks()) {
            if (block.kind == kind && !on_host) {
                (moved.has(kind) ? in_file : in_memory) = true;
            }
        }
        return on_host                ? StatesPlace::host_memory
               : in_memory && in_file ? StatesPlace::memory_and_file
               : in_file              ? StatesPlace::file
               : in_memory            ? StatesPlace::memory
                                      : StatesPlace::nowhere;
    }

    void require_here(char const* call, StateUse use) override {
        KindSet const used = use == StateUse::read_parameters ? read_kinds() : KindSet::movable();
        for (auto const& move : _moves) {
            if (!_is_lost && !(move->returning() & used).is_empty()) {
                finish(used);
                break;
            }
        }
        KindSet const missing = away() & used;
        if (missing.is_empty()) {
            return;
        }
        std::string names;
        for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
            if (missing.has(static_cast<BufferKind>(kind))) {
                names += text({names.empty() ? "" : ", ", name_of(static_cast<BufferKind>(kind))});
            }
        }
        if (_is_lost) {
            throw_error<BrokenEngine>(
                {"zero: ", call, ": ", names, " could not be reloaded and are lost (",
                 _access.protocol().rank_text(), "); load the last checkpoint into a new engine."});
        }
        throw_error<OutOfOrder>({"zero: ", call, " needs what is out of memory (", names, "; ",
                                 _access.protocol().rank_text(),
                                 "); call reload_states(engine) first."});
    }

private:
    using Parked = ParkedBlocks<typename CopierOf<Backend>::Type>;

    /// Returns where memory lies that the host uses.
    [[nodiscard]] MemoryResource& host_memory() const noexcept {
        if constexpr (is_on_device) {
            return Backend::staging_memory();
        } else {
            return _access.engine_memory().resource();
        }
    }

    /// Returns the kinds that are enough for a call that only reads parameters.
    static constexpr KindSet read_kinds() noexcept {
        return KindSet::of(std::initializer_list<BufferKind>{
            BufferKind::parameters, BufferKind::parameter_leases, BufferKind::secondary_copies});
    }

    static constexpr std::uint64_t least_chunk_bytes = 4096; ///< a sector or a page

    [[nodiscard]] KindSet away() const noexcept {
        KindSet kinds;
        for (auto const& move : _moves) {
            kinds = kinds | move->kinds();
        }
        return kinds;
    }

    void set_phase() noexcept {
        KindSet const kinds = away();
        _access.parking().set_away(!kinds.is_empty(), !(kinds & read_kinds()).is_empty());
    }

    /// Waits for what is under way in moves that have some of these kinds. Moves without kinds end.
    void finish(KindSet kinds) {
        for (std::size_t index = 0; index < _moves.size();) {
            Parked& move = *_moves[index];
            if ((move.kinds() & kinds).is_empty()) {
                ++index;
                continue;
            }
            try {
                move.finish();
            } catch (...) {
                bool const is_lost = move.is_lost();
                remove_if_empty(index);
                if (!is_lost) { // in memory, or still away
                    throw;
                }
                _is_lost = true;
                _access.guard([] { throw; });
            }
            index += remove_if_empty(index) ? 0 : 1;
        }
    }

    /// Ends a move of which nothing is needed, and says what is away.
    bool remove_if_empty(std::size_t index) {
        bool const is_empty = _moves[index]->kinds().is_empty();
        if (is_empty) {
            _moves.erase(_moves.begin() + static_cast<std::ptrdiff_t>(index));
        }
        set_phase();
        return is_empty;
    }

    void require_movable(BufferKind kind) const {
        if (!KindSet::movable().has(kind)) {
            throw_error<InvalidArgument>(
                {"zero: ", _access.protocol().rank_text(), ": ", name_of(kind),
                 " cannot be offloaded; name parameters, gradients, master_weights, "
                 "optimizer_state, gradient_leases, parameter_leases, held_sums, "
                 "secondary_copies or gradient_errors of BufferKind."});
        }
    }

    void require_own(BufferKind kind) const {
        bool is_callers =
            kind == BufferKind::parameters && _access.options().storage != Storage::owned;
        for (std::size_t parameter = 0;
             kind == BufferKind::gradients && parameter < _access.layout().parameters().size();
             ++parameter) {
            is_callers = is_callers || _access.has_callers_gradient(parameter);
        }
        for (auto const& block : _access.engine_memory().blocks()) {
            is_callers = is_callers && block.kind != kind;
        }
        if (is_callers) {
            throw_error<InvalidArgument>({"zero: ", _access.protocol().rank_text(), ": ",
                                          name_of(kind),
                                          " of this engine are memory of the caller, which it does "
                                          "not offload; leave that kind out."});
        }
    }

    StateAccess<Config> _access;
    std::vector<std::unique_ptr<Parked>> _moves;
    bool _is_lost = false; ///< something could not be read, which broke the engine
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Moves buffers of an engine to a file, or from a device to its host, gives back their
/// memory, and keeps their addresses. Between two steps, with no handle held. Not collective: each
/// rank calls it for itself.
///
/// Until `reload_states` every call that reads or writes states, or begins a step, throws
/// OutOfOrder, whichever kinds are away. `acquire` and `for_each_full_parameter` need parameters,
/// their leases and secondary copies only. Do not launch a captured graph of a step. The file has
/// no name and ends with the reload. Staging memory of four chunks is used while states move to or
/// from a file. Waits for all commands of the engine and for states that move, and then, unless
/// `blocking` is false, until the memory is free.
///
/// The engine of a device needs a `cuda::VirtualMemory` in `StageOptions::memory`. A thread of its
/// own copies the blocks, on a stream of its own.
///
/// A failure of the disk or of the memory resource leaves the engine as it was. Without `blocking`
/// it is thrown by the next call that moves states or waits for them.
/// @param kinds of parameters, gradients, master_weights, optimizer_state, gradient_leases,
/// parameter_leases, held_sums and secondary_copies; empty for all of them. Kinds that are away, or
/// of which the engine has no buffer, are left out.
/// @throws InvalidArgument for another kind, for one that is the caller's memory, for a memory
/// resource that cannot give back pages, and for a folder that cannot be used; TierError if the
/// disk is full or fails; OutOfOrder in a step, in a visitor or with a handle held; std::bad_alloc,
/// or CudaError if there is no page-locked memory;
/// what failed on this queue or another rank, which breaks the engine; BrokenEngine
template <class Stage>
void offload_states(Stage& engine, std::vector<BufferKind> const& kinds,
                    OffloadStatesOptions const& options) {
    detail::Parking<detail::config_of_t<Stage>>::of(engine, "offload_states()")
        .offload(kinds, options);
}

/// @brief The same for all kinds.
template <class Stage>
void offload_states(Stage& engine, OffloadStatesOptions const& options = {}) {
    offload_states(engine, {}, options);
}

/// @brief Takes memory under the same addresses and reads what `offload_states` moved, bit for bit.
/// Captured graphs stay valid. A no-op for kinds that are in memory. Not collective.
/// @throws TierError if the file cannot be read, or is not what was written: the engine is broken
/// then, and the other ranks get Aborted; std::bad_alloc, or CudaError of a full device, and
/// nothing was lost; BrokenEngine
template <class Stage>
void reload_states(Stage& engine, ReloadStatesOptions const& options = {}) {
    detail::Parking<detail::config_of_t<Stage>>::of(engine, "reload_states()").reload(options);
}

/// @brief Returns where the engine's buffers of a kind are. Does not wait: while states move,
/// `memory` until all of a call have left it, and `file` or `host_memory` until all are back.
/// @throws OutOfOrder while averages are shown (`AveragedWeights`)
template <class Stage>
[[nodiscard]] StatesPlace where(Stage& engine, BufferKind kind) {
    return detail::Parking<detail::config_of_t<Stage>>::of(engine, "where()").place(kind);
}

} // namespace ZERO_NAMESPACE
