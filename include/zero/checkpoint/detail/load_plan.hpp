#pragma once

#include "../../core/buffer.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../../host/host_backend.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../stage/detail/state/state_table.hpp"
#include "../checkpoint_reader.hpp"
#include "../load_options.hpp"
#include "../manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The part of a checkpoint that an engine loads, parameter by parameter: the intersections
/// of the stored intervals with the slices that this rank holds, regardless of the W and the stage
/// that saved them. Arrays of the same form are read item by item, others as floats. Depends on no
/// element type, so it is compiled once.
class LoadPlan {
public:
    /// @param names names of the engine's arrays, in the order of the table
    /// @param optimizer type name of the engine's optimizer, compared if everything is loaded
    /// @param average number of the state that is an average of the weights (`Averaged`)
    /// @throws CheckpointError that lists every difference, unless `options` accept it
    LoadPlan(FlatLayout const& layout, StateTable const& table,
             std::vector<std::string> const& names, std::string const& optimizer,
             CheckpointReader& checkpoint, LoadOptions const& options,
             std::optional<std::size_t> average);

    /// @brief Returns the differences that `LoadOptions` accepted, and the states that are dropped
    /// because their parameter is frozen now.
    [[nodiscard]] std::vector<std::string> differences() const {
        std::vector<std::string> all = _differences;
        all.insert(all.end(), _left_over.begin(), _left_over.end());
        all.insert(all.end(), _accepted.begin(), _accepted.end());
        return all;
    }

    /// @brief Returns, for each parameter, whether the checkpoint lacks one of its states.
    [[nodiscard]] std::vector<char> const& lacks_states() const noexcept { return _lacks_states; }

    /// @brief Verifies everything that `load` will read, and changes nothing.
    void verify();

    /// @brief Reads into the memory of the engine, and verifies the data.
    /// @param copy copies to and from that memory
    /// @param staging `piece_bytes` bytes of host memory; null if the host can write that memory
    /// @return the bytes that this rank needs
    std::uint64_t load(StateTable::Copy copy, std::byte* staging);

private:
    /// An array of one parameter.
    struct Item {
        std::size_t parameter = 0; ///< index in the engine
        std::size_t stored = 0;    ///< index in the checkpoint
        std::size_t begin = 0;     ///< its first element there: not 0 for a later tile
        ArrayKind kind = ArrayKind::parameter;
        std::size_t state = 0;
        bool is_raw = false;
        std::size_t array = 0;        ///< raw: index in the table
        std::size_t stored_array = 0; ///< raw: index in the manifest
    };

    void add(std::size_t parameter, std::optional<std::size_t> found,
             std::vector<std::string>& problems);
    void add_weights(std::size_t parameter, std::size_t stored, std::vector<std::string>& problems);
    void add_states(std::size_t parameter, std::size_t stored, std::vector<std::string>& problems);
    void add_dropped(std::size_t parameter, std::size_t stored);
    [[nodiscard]] bool has_same_form(std::size_t array, std::size_t parameter,
                                     std::size_t stored) const;
    [[nodiscard]] bool add_raw(std::vector<std::size_t> const& arrays, std::size_t parameter,
                               std::size_t stored);
    [[nodiscard]] std::string stored_weight_dtype(std::size_t stored) const;
    void refuse(std::vector<std::string> problems) const;
    template <class Raw>
    std::uint64_t for_items(StateTable::Copy copy, Raw const& raw);
    template <class Visitor>
    void for_parts(Item const& item, Visitor const& visit) const;
    /// Reads an item, and stores it unless `copy` is empty. @return the bytes of its values
    std::uint64_t read_as_floats(Item const& item, StateTable::Copy copy);

    FlatLayout const* _layout;
    StateTable const* _table;
    std::vector<std::string> const* _names;
    CheckpointReader* _checkpoint;
    LoadOptions _options;
    std::vector<Item> _items;
    std::vector<std::string> _differences; ///< `LoadOptions::may_differ` accepts them
    std::vector<std::string> _left_over;   ///< more of them: what the engine lacks
    std::vector<std::string> _accepted;    ///< other differences, which are listed only
    std::vector<char> _lacks_states;       ///< by parameter
    std::optional<std::size_t> _average;
    std::vector<std::size_t> _begin_average; ///< parameters whose average begins at their weights
    std::vector<std::string> _roundings;     ///< `LoadOptions::may_round` would accept them
};

/// @brief Files are written, and read into a device, in pieces of this size.
inline constexpr std::size_t piece_bytes = std::size_t{1} << 22U;

/// @brief Makes the buffer through which data passes between a file and the states of an engine;
/// empty if the host can access their memory.
///
/// It comes from `Backend::staging_memory()`, which returns a `MemoryResource&` of host memory from
/// which the device copies fast; from the heap if the backend has no such function.
/// @tparam Access `StateAccess`
template <class Access>
[[nodiscard]] Buffer<std::byte> staging_buffer() {
    using Backend = typename Access::Backend;
    if constexpr (Access::is_direct) {
        return {};
    } else {
        MemoryResource* memory = nullptr;
        if constexpr (requires { Backend::staging_memory(); }) {
            memory = &Backend::staging_memory();
        } else {
            memory = &HostBackend::default_memory();
        }
        return {*memory, piece_bytes, BufferKind::scratch};
    }
}

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "load_plan.ipp"
#endif
