#pragma once

/// @file
/// @brief Everything of `zero::checkpoint`: saving and loading of training states.

#include "checkpoint_directory.hpp"
#include "checkpoint_error.hpp"
#include "checkpoint_reader.hpp"
#include "checkpoint_saver.hpp"
#include "consolidate.hpp"
#include "load_checkpoint.hpp"
#include "load_parameters.hpp"
#include "load_parts.hpp"
#include "manifest.hpp"
#include "safetensors_reader.hpp"
#include "safetensors_writer.hpp"
#include "save_checkpoint.hpp"
#include "save_parameters.hpp"
#include "tensor_rules.hpp"
