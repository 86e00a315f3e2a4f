# frozen_string_literal: true

# Writes the goldens of this folder with Homebrew's own code:
#
#   ruby make_goldens.rb BREW
#
# BREW is a checkout of Homebrew/brew.  Its service.rb reads the service block of Formula/ingot.rb and
# writes the plist and the unit, with its own plist library.  What that file needs of the rest of
# Homebrew and does not use here (types, downloads of settings, the system's name) is replaced.
require "forwardable"
require "ipaddr"
require "pathname"
require "tmpdir"

BREW = Pathname(ARGV.fetch(0)) / "Library/Homebrew"
HERE = Pathname(__dir__)
HOMEBREW_PREFIX = Pathname("/opt/homebrew")
ENV["HOMEBREW_USER_CONFIG_HOME"] = Dir.mktmpdir

# Sorbet's types, which check nothing here.
module T
  Boolean = Object
  Array = Hash = Range = Class.new { def self.[](*) = self }

  class << self
    def type_alias = Object
    def let(value, _) = value
    def must(value) = value
    def unsafe(value) = value
    def untyped = Object
    def any(*) = Object
    def nilable(*) = Object
    def proc = Class.new { def self.bind(*) = self }
  end
end

class Module
  def sig(*); end
end

module Utils
  module Output
    module Mixin; end
  end

  module Path; end
end

module OnSystem
  module MacOSAndLinux
    def on_system_conditional(macos: nil, linux: nil) = macos || linux
  end
end

$LOAD_PATH.unshift BREW.to_s, Dir[BREW / "vendor/bundle/ruby/*/gems/plist-*/lib"].fetch(0)
%w[on_system.rb utils/path.rb services/system.rb].each { |name| $LOADED_FEATURES << (BREW / name).to_s }
require "extend/blank"
require "utils/service"
require "service"

require_relative "stand_in"

formula = StandIn.load(HERE.parent.parent / "Formula/ingot.rb", HOMEBREW_PREFIX)
service = Homebrew::Service.new(formula, &formula.class.service_block)
(HERE / "homebrew.mxcl.ingot.plist").write service.to_plist
(HERE / "homebrew.ingot.service").write service.to_systemd_unit
