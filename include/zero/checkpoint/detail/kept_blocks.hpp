#pragma once

#include "../../core/detail/namespace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Keeps the last blocks that were read from a file, because callers alternate between a few
/// places.
class KeptBlocks {
public:
    /// @brief Returns a block, which is valid until the next call.
    /// @param read called as `read(span)` if the block is not kept; may throw
    template <class Read>
    std::span<std::byte const> get(std::uint64_t number, std::size_t bytes, Read const& read) {
        for (Block const& block : _blocks) {
            if (block.number == number) {
                return {block.bytes.data(), block.bytes.size()};
            }
        }
        Block& block = _blocks[_oldest];
        _oldest = (_oldest + 1) % _blocks.size();
        block.number.reset();
        block.bytes.resize(bytes);
        std::span<std::byte> const memory(block.bytes.data(), bytes);
        read(memory);
        block.number = number;
        return memory;
    }

private:
    struct Block {
        std::optional<std::uint64_t> number; ///< empty: none
        std::vector<std::byte> bytes;
    };

    std::array<Block, 8> _blocks;
    std::size_t _oldest = 0; ///< the next to be replaced
};

} // namespace ZERO_NAMESPACE::detail
